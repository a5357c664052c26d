#!/usr/bin/env bash
# Sweeps how often a move on FrozenLake slips, with and without the filter. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/main_table_setup.sh"
rates=100,50,20,10,5,2,0 top_p=0.9 none=1.0 tasks=frozenlake
usage() {
  table_usage "  --slipper-rate LIST         percent of moves that slip, or shares up to 1 without a % sign (100,50,20,10,5,2,0)
  --filter-modes LIST         as --filters
  --filter-top-p X            top_p of filter (0.9)
  --nofilter-top-p X          top_p of nofilter (1.0)
  --model DIR                 Hugging Face directory to train (models/Qwen2.5-3B)"
}
own() {
  case $1 in
    --slipper-rate) rates=$2 ;;
    --filter-modes) table_option --filters "$2" ;;
    --filter-top-p) top_p=$2 ;;
    --nofilter-top-p) none=$2 ;;
    --tasks) listed --tasks "$2" frozenlake ;;
    *) table_option "$@" ;;
  esac
}
parse "$@"
successes='' labels=''
for rate in ${rates//,/ }; do
  [[ $rate =~ ^[0-9]*\.?[0-9]+%?$ ]] || fail "--slipper-rate names '$rate', expected percent or shares up to 1"
  # 1 % is one percent, 1 all moves
  success=$(awk -v r="$rate" 'BEGIN {p = r ~ /%/; sub(/%/, "", r); if (p || r > 1) r /= 100; if (r > 1) exit 1; printf "%.6f", 1 - r}') || fail "--slipper-rate names '$rate', expected at most 100"
  successes+=,$success labels+=,slip$(awk -v s="$success" 'BEGIN {printf "%.6g", 100 * (1 - s)}' | tr . p)
done
named="{ filter = [\"filter.value=$top_p\", \"filter.include_zero=false\"], nofilter = [\"filter.value=$none\", \"filter.include_zero=true\"] }"
task_words() { words=(); [[ $preset != small ]] || words=(envs.0.tag=FrozenLake validation.envs.0.tag=FrozenLake); }
run_table frozenlake_slip slipper_rate_sweep axes.0.values="[${successes#,}]" axes.0.labels="$(quoted "${labels#,}")" axes.1.named="$named"
