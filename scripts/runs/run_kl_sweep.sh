#!/usr/bin/env bash
# Sweeps the KL loss to the reference on Sokoban. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/sweep_setup.sh"
values=0,0.001,0.003,0.01,0.03,0.1

usage() {
  sweep_usage "  --kl-values LIST            values (0,0.001,0.003,0.01,0.03,0.1)
  --rollout_filter_include_zero BOOL
                              keep groups without reward variance (True)"
}
own() {
  case $1 in
    --kl-values) values=$2 ;;
    --rollout_filter_include_zero) include_zero=$(truth "$2") || fail "$1 is '$2', expected True or False" ;;
    *) return 1 ;;
  esac
}
parse "$@"
include_zero=$(truth "$include_zero")
if [[ $include_zero == true ]]; then tag=nofilter; else tag=filter_zero; fi
line() { echo "kl=$1 | filter=$tag | include_zero=$([[ $include_zero == true ]] && echo True || echo False)"; }
run_sweep kl_sweep kl_sweep 'KL Sweep' "$tag" filter.include_zero="$include_zero"
