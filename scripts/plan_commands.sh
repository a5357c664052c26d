#!/usr/bin/env bash
# Plans the commands of the experiments, each at its own model's size and on the GPUs that it names, and prints them as a table:
#
#   bash scripts/plan_commands.sh [DEVICE]        (h100)
#
# Nothing is computed: stand-ins report eight GPUs and have gyre plan what it was asked to run. Of the models only configs/shapes is needed.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
device=${1:-h100}
gyre=${GYRE:-$root/gyre}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

mkdir bin models
for size in 0.5 1.5 3 7; do
  ln -s "$root/configs/shapes/qwen2.5-${size}b" "models/Qwen2.5-${size}B"
  ln -s "$root/configs/shapes/qwen2.5-${size}b" "models/Qwen2.5-${size}B-Instruct"
done
cat >bin/nvidia-smi <<'END'
#!/bin/sh
case $1 in -L) for i in 0 1 2 3 4 5 6 7; do echo "GPU $i: stand-in"; done ;; *) echo 81559 ;; esac
END
# A run is planned as training, which needs no less than an analysis does; what it only reads or writes is left out.
cat >bin/gyre <<END
#!/usr/bin/env bash
words=()
while (( \$# )); do
  case \$1 in
    analyze) words+=(train) ;;
    --resume | --with-val) ;;
    --checkpoint | --step | --output) shift ;;
    *) words+=("\$1") ;;
  esac
  shift
done
case \${words[0]} in train | sweep) words+=(--dry-run --device $device) ;; esac
exec "$gyre" "\${words[@]}"
END
chmod +x bin/*
export PATH=$work/bin:$PATH GYRE=$work/bin/gyre NO_COLOR=1 COLUMNS=400
mkdir -p elsewhere/global_step_101/actor data
python3 - <<'END'
import json
json.dump([{"problem": f"What is {i} + 1?", "solution": f"\\boxed{{{i + 1}}}", "answer": str(i + 1), "subject": "Algebra", "level": 1, "unique_id": str(i)} for i in range(500)],
          open("math500_test.json", "w"))
END
"$gyre" data prepare math500 --input math500_test.json >/dev/null 2>&1
"$gyre" model init tokenizer >/dev/null 2>&1 # whose lengths of prompts will do
math500=(envs.0.options.tokenizer=tokenizer)

# plan TITLE COMMAND ...: a row of the table.
plan() {
  local title=$1 said ranks shard need verdict
  shift
  said=$("$@" 2>&1) || { echo "$said" >&2; exit 1; }
  if grep -q 'd\(oes\|oes NOT\) fit\|fits in the' <<<"$said"; then
    ranks=$(sed -n 's/^memory of each of \([0-9]*\) ranks.*/\1/p' <<<"$said" | head -1)
    shard=$(sed -n 's/^fsdp.shard = "auto": //p' <<<"$said" | head -1)
    read -r need verdict < <(sed -n 's/^\([0-9.]*\) GiB \(fits\|does NOT fit\) in .*/\1 \2/p' <<<"$said")
    if [[ $verdict != fits ]]; then verdict="does NOT fit; $(sed -n 's/^  would do: //p' <<<"$said" | paste -sd ';' | sed 's/;/; or /g')"; fi
  else # a study lists its runs
    ranks=$(sed -n 's/.* \([0-9]*\) x [0-9.]* GiB.*/\1/p' <<<"$said" | head -1)
    need=$(sed -n 's/.* \([0-9.]*\) GiB .*/\1/p' <<<"$said" | sort -n | tail -1)
    verdict=fits shard=$(sed -n 's/.* fsdp.shard=\([a-z]*\) .*/\1/p' <<<"$said" | head -1)
    if grep -q 'does not fit' <<<"$said"; then verdict="does NOT fit; $(sed -n 's/.*: would fit with //p' <<<"$said" | head -1)"; fi
    [[ -n $need ]] || { echo "$said" >&2; exit 1; }
  fi
  echo "| $title | ${ranks:-1} | ${shard:-} | $need GiB | $verdict |"
}

echo "| command | ranks | \`fsdp.shard\` | of a rank | on $device |"
echo "|---|---|---|---|---|"
scripts=$root/scripts
plan "\`run_sokoban_ppo_filter_grad_analysis.sh --gpus 0,1,2,3\`" bash "$scripts/runs/run_sokoban_ppo_filter_grad_analysis.sh" --gpus 0,1,2,3
plan "\`… --algo GRPO --gpus 0,1,2,3\`" bash "$scripts/runs/run_sokoban_ppo_filter_grad_analysis.sh" --algo GRPO --gpus 0,1,2,3
plan "\`… --gpus 0,1,2,3,4,5,6,7\`" bash "$scripts/runs/run_sokoban_ppo_filter_grad_analysis.sh" --gpus 0,1,2,3,4,5,6,7
plan "\`…_probe_ckpt.sh --gpus 0,…,7\`" bash "$scripts/runs/run_sokoban_ppo_filter_grad_analysis_probe_ckpt.sh" --resume-from-path elsewhere/global_step_101 --gpus 0,1,2,3,4,5,6,7
for sweep in top_p kl entropy; do
  plan "\`run_${sweep}_sweep.sh\`" bash "$scripts/runs/run_${sweep}_sweep.sh"
  plan "\`run_${sweep}_sweep.sh --gpus-per-exp 4\`" bash "$scripts/runs/run_${sweep}_sweep.sh" --gpus-per-exp 4 --gpus 0,1,2,3,4,5,6,7
done
common="training.train_batch_size=4 training.ppo_batch_size=32 training.micro_batch_size=4 training.max_turns=5 training.n_rollout=8 optimization.kl_coef=0.001 optimization.adv_estimator=brpo"
for size in 0.5 1.5 3; do
  plan "\`train.sh sokoban\`, Qwen2.5-${size}B-Instruct" bash "$scripts/train.sh" sokoban "model.base_model=Qwen/Qwen2.5-${size}B-Instruct" model.experiment_name="s$size" $common
done
plan "\`train.sh sokoban system.n_gpus=2\`, Qwen2.5-7B-Instruct" bash "$scripts/train.sh" sokoban model.base_model=Qwen/Qwen2.5-7B-Instruct model.experiment_name=s7 system.n_gpus=2 $common
for group in 1 4; do
  plan "\`hyperparam_search.sh --search_group $group --n_gpus 1\`" bash "$scripts/hyperparam_search.sh" --env_name=two_armed_bandit --exp_base_name="h$group" --search_group "$group" \
    --micro_batch_size 4 --parallel --n_gpus 1 --dry_run
done
plan "\`run_grpo.sh trainer.n_gpus_per_node=8\`" bash "$scripts/run_grpo.sh" trainer.n_gpus_per_node=8 "${math500[@]}"
plan "\`configs/math500_grpo_1gpu.toml\`" "$work/bin/gyre" train "$root/configs/math500_grpo_1gpu.toml" "${math500[@]}"
