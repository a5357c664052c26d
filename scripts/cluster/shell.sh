#!/usr/bin/env bash
# A shell in the container, or one command: bash scripts/cluster/shell.sh [COMMAND ...]. `check` as the command says whether the GPU is seen.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
prepare
case ${1:-} in
  '') inside bash ;;
  check) check ;;
  *) inside "$@" ;;
esac
