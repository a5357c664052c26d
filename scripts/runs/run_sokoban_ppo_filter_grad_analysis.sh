#!/usr/bin/env bash
# Trains Sokoban with top-p 0.9 reward-variance filtering and analyses gradients on the way, at steps 1, 51 and 101. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/gradient_analysis_setup.sh"
steps=101 save_freq=100

usage() {
  cat <<'END'
usage: run_sokoban_ppo_filter_grad_analysis.sh [options] [key=value ...]

  --algo NAME                             PPO or GRPO (PPO)
  --steps N                               training steps (101)
  --save-freq N                           steps between checkpoints (100)
  --model DIR                             Hugging Face directory to train (models/Qwen2.5-3B)
  --preset small                          for two cores: a policy of a million parameters, made if it is not there; 4x8 and 24x8 episodes
  --gpus LIST                             such as 0,1,2,3 (those that nvidia-smi lists): a rank of the run on each; without any GPU the CPU
  --ppo-micro-batch-size-per-gpu N        episodes of about 1024 tokens per forward pass (4)
  --log-prob-micro-batch-size-per-gpu N   the same for passes without gradients; the smaller of the two holds for all (4)
  --gpu-memory-utilization X              share of the device's memory that sampling may take (what the batch needs)
  --ray-num-cpus N                        threads, at most one per core (16)

Further key=value words override configs/sokoban_ppo_filter.toml. Started again, an interrupted run
continues from its newest checkpoint to the same results.
END
}
own() {
  case $1 in
    --steps) steps=$2; positive "$@" ;;
    --save-freq) save_freq=$2; positive "$@" ;;
    *) return 1 ;;
  esac
}
flag() { false; }

parse "$@"
find_gyre
detect_gpus
settle
name=sokoban-$algo-filter-topp09-$model_name-train$train-analysis$analysis-grad-every50
title='Sokoban, filtered training with gradient analysis' project=ragen_gradient_analysis heading="steps=$steps every=50"
logged "logs/gradient_analysis_sokoban_$model_name/$name.log" \
  "$gyre" train "$root/configs/sokoban_ppo_filter.toml" "${common[@]}" \
  run.name="$name" run.project="$project" run.output="model_saving/gradient_analysis/sokoban/$algo/filter" run.steps="$steps" run.save_every="$save_freq" \
  run.validate_first=true run.validate_every=10 analysis.every=50 analysis.exit_after=false algorithm.kl_coef=0 checkpoint.keep=1 \
  ${overrides[@]+"${overrides[@]}"} --resume
