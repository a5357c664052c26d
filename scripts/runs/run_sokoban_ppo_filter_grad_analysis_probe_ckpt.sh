#!/usr/bin/env bash
# Analyses the gradients of one saved checkpoint, KL and entropy included, and changes nothing. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/gradient_analysis_setup.sh"
step=101 checkpoints='' resume='' validation=noval

usage() {
  cat <<'END'
usage: run_sokoban_ppo_filter_grad_analysis_probe_ckpt.sh [options] [key=value ...]

  --algo NAME                             PPO or GRPO (PPO)
  --checkpoint-step N                     which global_step_N (101)
  --checkpoint-root DIR                   where it lies (where the training script put it)
  --resume-from-path DIR                  this global_step_N folder instead
  --with-val                              play the validation set first
  --model DIR                             the model that was trained, the reference of the KL term (models/Qwen2.5-3B)
  --preset small                          the small experiment of the training script
  --gpus LIST                             such as 0,1,2,3 (those that nvidia-smi lists): a rank of the run on each; without any GPU the CPU
  --ppo-micro-batch-size-per-gpu N        episodes of about 1024 tokens per forward pass (4)
  --log-prob-micro-batch-size-per-gpu N   the same for passes without gradients; the smaller of the two holds for all (4)
  --gpu-memory-utilization X              share of the device's memory that sampling may take (what the batch needs)
  --ray-num-cpus N                        threads, at most one per core (16)

Further key=value words override configs/sokoban_ppo_filter.toml. Draw the result with `gyre plot` and the folder that is printed last.
END
}
own() {
  case $1 in
    --checkpoint-step) step=$2; positive "$@" ;;
    --checkpoint-root) checkpoints=${2%/} ;;
    --resume-from-path) resume=${2%/} ;;
    *) return 1 ;;
  esac
}
flag() { [[ $1 == --with-val ]] && validation=withval; }

parse "$@"
if [[ -n $resume ]]; then
  [[ $(basename "$resume") =~ ^global_step_([0-9]+)$ ]] || fail "--resume-from-path is '$resume', expected a folder named global_step_N (not its actor)"
  step=${BASH_REMATCH[1]}
fi
find_gyre
detect_gpus
settle
trained=sokoban-$algo-filter-topp09-$model_name-train$train-analysis$analysis-grad-every50
checkpoint=${resume:-${checkpoints:-model_saving/gradient_analysis/sokoban/$algo/filter/$trained}/global_step_$step}
if [[ ! -d $checkpoint ]]; then
  there=$(cd "$(dirname "$checkpoint")" 2>/dev/null && ls -d global_step_* 2>/dev/null | tr '\n' ' ' || true)
  fail "there is no $checkpoint${there:+ (its folder has ${there% })}: train first, or name a checkpoint with --checkpoint-step, --checkpoint-root or --resume-from-path"
fi

name=sokoban-$algo-filter-topp09-$model_name-probe-ckpt$step-$validation-kl_and_entropy
output=model_saving/gradient_analysis_probe/sokoban/$algo/filter/$name
options=(--checkpoint "$checkpoint" --step "$((step > 1 ? step : 1))" --output "$output")
if [[ $validation == withval ]]; then options+=(--with-val); fi
title='Sokoban, gradient analysis of a checkpoint' project=ragen_gradient_analysis_probe heading="checkpoint=$checkpoint"
logged "logs/gradient_analysis_probe_sokoban_$model_name/$name.log" \
  "$gyre" analyze "$root/configs/sokoban_ppo_filter.toml" "${common[@]}" \
  run.name="$name" run.project="$project" model.reference="$model" algorithm.kl_coef=0.001 algorithm.kl_in=loss ${overrides[@]+"${overrides[@]}"} "${options[@]}"
echo "$output"
