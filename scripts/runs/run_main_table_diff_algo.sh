#!/usr/bin/env bash
# RAGEN's main table over algorithms, task by task. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/main_table_setup.sh"
algos=PPO,DAPO,GRPO,DrGRPO
usage() {
  table_usage "  --algos LIST                of PPO, DAPO, GRPO, DrGRPO (all). With RAGEN's settings PPO and DAPO are one configuration
  --model DIR                 Hugging Face directory to train (models/Qwen2.5-3B)"
}
own() {
  case $1 in
    --algos) algos=$2; listed --algos "$2" PPO DAPO GRPO DrGRPO ;;
    *) table_option "$@" ;;
  esac
}
parse "$@"
run_table main_table_diff_algo diff_algo axes.0.values="$(quoted "$algos")"
