#!/usr/bin/env bash
# The demo, end to end: a small policy is made, warm-started on expert demonstrations, trained by PPO with the reward-variance filter,
# analysed on the way, validated on held-out levels, and drawn. `make demo` builds everything first and runs this.
#
# Run again, it continues where it stopped; FRESH=1 starts over (and deletes runs/demo, runs/demo-sft and models/demo).
set -euo pipefail
cd "$(dirname "$0")/.."

gyre=./gyre
config=configs/demo.toml
begin=$(date +%s)

title() { printf '\n== %s\n' "$*"; }
success() { # success JSON: the success rate in percent
  printf '%s' "$1" | sed -E 's/.*"sokoban\/success":([0-9.e+-]+).*/\1/' | awk '{printf "%.1f", 100 * $1}'
}

if [ -n "${FRESH:-}" ]; then rm -rf models/demo runs/demo runs/demo-sft; fi

title "1/6  a policy of about a million parameters, and a tokenizer of its own"
[ -f models/demo/config.json ] || $gyre model init models/demo
$gyre model info models/demo

title "2/6  the random policy: ten uniformly random moves per level"
random=$($gyre env play sokoban --random --episodes 2000)
printf '%s\n' "$random"

title "3/6  warm start: supervised fine-tuning on shortest-path demonstrations"
if ! ls runs/demo-sft/global_step_*/manifest.json >/dev/null 2>&1; then
  rm -rf runs/demo-sft # an interrupted warm start is repeated
  $gyre sft $config run.name=demo-sft run.validate_every=0
fi
warm_dir=$(ls -d runs/demo-sft/global_step_*/actor)
warm=$($gyre eval $config model.path="$warm_dir" --json)
echo "held-out success after the warm start: $(success "$warm") %"

title "4/6  reinforcement learning: PPO, groups without reward spread filtered out, gradients analysed at steps 1, middle and last"
$gyre train $config model.path="$warm_dir" --resume
last=$(ls -d runs/demo/global_step_* | sort -t_ -k3 -n | tail -1)
trained=$($gyre eval $config --checkpoint "$last" --json)

title "5/6  plots"
$gyre plot runs/demo
$gyre plot runs/demo-sft

title "6/6  what was learned ($(( ($(date +%s) - begin) / 60 )) min $(( ($(date +%s) - begin) % 60 )) s)"
printf 'success on 512 held-out 6x6 Sokoban levels (one box, at most ten moves):\n'
printf '  random moves   %s\n' "$(printf '%s\n' "$random" | grep -oE 'success[^0-9]*[0-9.]+ ?%' | grep -oE '[0-9.]+' | head -1) %"
printf '  warm start     %s %%\n' "$(success "$warm")"
printf '  after training %s %%\n' "$(success "$trained")"
cat <<END

  runs/demo/metrics.jsonl             every metric of every step
  runs/demo/rollouts/                 every episode
  runs/demo/plots/training.png        the curves
  runs/demo/plots/gradient_analysis_* what each reward-spread bucket contributed to the gradient
  $last/actor    the trained policy, a Hugging Face directory
END
