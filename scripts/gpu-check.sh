#!/usr/bin/env bash
# Builds Gyre's C++ part on a GPU machine against the CUDA torch of the active Python (or of $LIBTORCH) and holds the GPU against
# the CPU's kernels: every operation of the C ABI, forward passes, gradients, losses, optimizer steps and generation, in float32 and
# bfloat16, and what analysis and updates copy to the host (results, nothing else). Then a tiny run on the GPU: warm start, PPO with
# critic and KL, gradient analysis of every step, evaluation. Needs CMake, Ninja, a C++20 compiler, GoogleTest (package libgtest-dev,
# or its source in $GYRE_GTEST_SOURCE), a GPU, and for the run a gyre binary ($GYRE, ./gyre, or Go to build it); no nvcc.
#
#   scripts/gpu-check.sh [build folder, build-gpu if left out]
#   scripts/gpu-check.sh --run DEVICE     only the tiny run, with ./gyre as it is: "aten" tries it without a GPU
#
# Exit status 0: every test ran on the GPU and passed, and the run's numbers are there and finite.
set -euo pipefail
cd "$(dirname "$0")/.."
build="${1:-build-gpu}"
say() { printf 'gpu-check: %s\n' "$*"; }
die() { printf 'gpu-check: error: %s\n' "$*" >&2; exit 1; }

# tiny_run GYRE DEVICE: trains, analyses and evaluates a small policy on the device.
tiny_run() {
  local gyre="$1" device="$2" dir
  dir="$(mktemp -d)"
  trap 'rm -rf "$dir"' RETURN
  local few="model.device=$device model.dtype=auto run.output=$dir run.validate_every=0 run.validate_first=false validation.envs.0.groups=4"
  "$gyre" model init "$dir/model" >"$dir/log" 2>&1 || { cat "$dir/log"; die "no model could be made"; }
  # shellcheck disable=SC2086
  "$gyre" sft configs/demo_sokoban.toml model.path="$dir/model" run.name=sft $few sft.epochs=1 sft.episodes=64 >"$dir/log" 2>&1 ||
    { tail -20 "$dir/log"; die "the warm start failed on $device"; }
  # shellcheck disable=SC2086
  "$gyre" train configs/demo_sokoban.toml model.path="$(ls -d "$dir"/sft/global_step_*/actor)" run.name=rl $few run.steps=2 run.save_every=1 \
    envs.0.groups=4 envs.0.group_size=4 actor.mini_batch=8 critic.mini_batch=8 filter.strategy=none \
    analysis.every=1 analysis.groups=4 analysis.group_size=4 >"$dir/log" 2>&1 ||
    { tail -20 "$dir/log"; die "training failed on $device"; }
  # shellcheck disable=SC2086
  "$gyre" eval configs/demo_sokoban.toml --checkpoint "$dir/rl/global_step_2" $few --json >"$dir/eval" 2>"$dir/log" ||
    { tail -20 "$dir/log"; die "the evaluation failed on $device"; }
  local metric
  for metric in actor/grad_norm actor/pg_loss actor/kl_loss critic/vf_loss grad_norm/all/task grad_norm/all/cosine/task_kl; do
    grep -q "\"$metric\"" "$dir/rl/metrics.jsonl" || die "the run on $device logged no $metric"
  done
  if grep -Eqi '[:,] ?(nan|inf|-inf)' "$dir/rl/metrics.jsonl"; then die "the run on $device logged numbers that are not finite"; fi
  say "a tiny run on $device: trained, analysed, evaluated"
}

if [ "${1:-}" = --run ]; then
  tiny_run "${GYRE:-./gyre}" "${2:?a device}"
  exit
fi

torch="${LIBTORCH:-$(python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")')}"
[ -n "$torch" ] || die "no torch: pip install torch, or set LIBTORCH to a libtorch with CUDA"
[ -e "$torch/lib/libtorch_cuda.so" ] || die "$torch has no CUDA (lib/libtorch_cuda.so): install a CUDA build of torch"
command -v nvidia-smi >/dev/null && say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader)"
say "torch: $torch"

cmake -S . -B "$build" -G Ninja -DGYRE_CUDA=ON -DLIBTORCH="$torch" ${GYRE_GTEST_SOURCE:+-DGYRE_GTEST_SOURCE="$GYRE_GTEST_SOURCE"}
cmake --build "$build" --target gyre_tests || die "the build failed (a missing target gyre_tests means that there is no GoogleTest)"

log="$build/gpu-check.log"
status=0
"$build/gyre_tests" --gtest_filter='*Backend*' | tee "$log" || status=$?
if grep -qE 'SKIPPED.*(BackendGpu|/cuda)' "$log"; then die "tests were skipped: the GPU could not be used, the log says why"; fi
[ "$status" = 0 ] || die "tests failed: see $log"
say "the GPU agrees with the CPU's kernels: $(grep -cE 'OK \].*(BackendGpu|/cuda)' "$log") tests"

gyre="${GYRE:-}"
if [ -z "$gyre" ] && [ -x ./gyre ]; then gyre=./gyre; fi
if [ -z "$gyre" ]; then
  command -v go >/dev/null || die "no gyre binary for the tiny run: set GYRE to one built elsewhere, or install Go"
  go build -o "$build/gyre" . && gyre="$build/gyre"
fi
LD_LIBRARY_PATH="$(cd "$build" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" tiny_run "$gyre" cuda
