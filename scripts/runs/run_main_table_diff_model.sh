#!/usr/bin/env bash
# RAGEN's main table of PPO over models, task by task. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/main_table_setup.sh"
models_table diff_model_PPO Qwen2.5-3B-Instruct,Llama-3.2-3B-Instruct "$@"
