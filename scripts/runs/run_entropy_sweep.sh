#!/usr/bin/env bash
# Sweeps the entropy bonus on Sokoban. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/sweep_setup.sh"
sweep_coefficient entropy 'Entropy Sweep' "$@"
