#!/usr/bin/env bash
# RAGEN's main table of PPO over sizes, task by task. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/main_table_setup.sh"
models_table diff_size_PPO 0.5B,1.5B,3B,7B "$@"
