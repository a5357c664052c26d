#!/usr/bin/env bash
# The demo, end to end: a small policy is made, warm-started by a teacher that errs, trained by GRPO with the reward-variance filter, validated on
# held-out levels, and its gradients are analysed before and after. `make demo` builds everything first and runs this.
#
# Run again, it continues where it stopped; FRESH=1 starts over (and deletes runs/demo, runs/demo-sft, runs/demo-analysis and models/demo-policy).
set -euo pipefail
cd "$(dirname "$0")/.."

gyre=./gyre
config=configs/demo.toml
model=models/demo-policy
analyses=runs/demo-analysis
begin=$(date +%s)

title() { printf '\n== %s\n' "$*"; }

if [ -n "${FRESH:-}" ]; then rm -rf "$model" runs/demo runs/demo-sft "$analyses"; fi

title "1/6  a policy of 0.2 million parameters, and a tokenizer of its own"
[ -f "$model/config.json" ] ||
  $gyre model init "$model" --family qwen2 --hidden 64 --layers 3 --heads 4 --kv-heads 4 --intermediate 256 --std 0.12
$gyre model info "$model"

title "2/6  the levels: what training, demonstrations and validation begin with, and what random moves reach"
overlap=$($gyre env overlap $config)
random=$($gyre eval $config --random | grep '/success ')
printf '%s\n%s\n' "$overlap" "$random"

title "3/6  warm start: supervised fine-tuning on a teacher of shortest paths who errs in seven turns of ten"
if ! ls runs/demo-sft/global_step_*/manifest.json >/dev/null 2>&1; then
  rm -rf runs/demo-sft # an interrupted warm start is repeated
  $gyre sft $config run.name=demo-sft run.validate_every=0
fi
before=$(ls -d runs/demo-sft/global_step_*/actor)

title "4/6  reinforcement learning: GRPO, groups without reward variance filtered out"
$gyre train $config model.path="$before" --resume
last=$(ls -d runs/demo/global_step_* | sort -t_ -k3 -n | tail -1)

title "5/6  where the gradient comes from: groups sorted by the standard deviation of their rewards, before and after training"
for form in true false; do
  for moment in before after; do
    policy=$before
    [ $moment = before ] || policy=$last/actor
    out=$analyses/$moment-norm_by_std-$form
    [ -f "$out/metrics.jsonl" ] ||
      $gyre analyze $config model.path="$policy" algorithm.norm_by_std=$form algorithm.entropy_coef=0 filter.strategy=none --output "$out"
  done
done
sentences=$($gyre plot signal --title "Demo: where the gradient of the task comes from" --out $analyses/signal.png \
  "centred returns/before training=$analyses/before-norm_by_std-false" "centred returns/after training=$analyses/after-norm_by_std-false" \
  "returns divided by their std/before training=$analyses/before-norm_by_std-true" \
  "returns divided by their std/after training=$analyses/after-norm_by_std-true")
$gyre plot runs/demo
$gyre plot runs/demo-sft
$gyre report runs/demo

title "6/6  what was learned ($(( ($(date +%s) - begin) / 60 )) min $(( ($(date +%s) - begin) % 60 )) s)"
$gyre plot runs/demo --terminal
printf '  random moves    %s episodes\n' "${random#* }"
printf '  %s\n  (in the middle of episodes training does come across some of them: docs/demo.md)\n\n' "$overlap"
printf '%s\n' "$sentences" | head -2 | sed G | fold -s -w 110
cat <<END

  runs/demo/report.html               the run on one page
  runs/demo/plots/training.png        the curves
  $analyses/signal.png       the gradients by reward variance: the range of each bucket stands under it
  runs/demo/metrics.jsonl             every metric of every step; runs/demo/rollouts/ every episode
  $last/actor    the trained policy, a Hugging Face directory

To go on:
  $gyre eval $config --checkpoint runs/demo validation.seed=99      on other held-out levels
  $gyre analyze $config --checkpoint runs/demo                      its gradients, as a training step measures them
  $gyre train $config model.path=$before run.name=unfiltered filter.strategy=none
END
