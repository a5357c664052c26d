#!/usr/bin/env bash
# Sweeps the KL loss to the reference on Sokoban. See --help.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/sweep_setup.sh"
sweep_coefficient kl 'KL Sweep' "$@"
