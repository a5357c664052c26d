#!/usr/bin/env bash
# Sweeps the strength of the reward-variance filter on Sokoban. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/sweep_setup.sh"
values=1.0,0.98,0.95,0.9,0.8,0.6,0.4,nofilter

usage() {
  sweep_usage "  --rollout_filter_value LIST values (1.0,0.98,0.95,0.9,0.8,0.6,0.4,nofilter)"
}
own() {
  case $1 in
    --rollout_filter_value) values=$2 ;;
    *) return 1 ;;
  esac
}
parse "$@"
# nofilter is the value 1.0 with groups of zero variance kept.
line() { if [[ $1 == nofilter ]]; then echo "value=$1 | include_zero=True | filter_value=1.0"; else echo "value=$1 | include_zero=False | filter_value=$1"; fi; }
run_sweep top_p_sweep top_p 'Top-p Sweep' ''
