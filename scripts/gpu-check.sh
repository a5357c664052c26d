#!/usr/bin/env bash
# Builds Gyre's C++ part on a GPU machine against the CUDA torch of the active Python (or of $LIBTORCH) and holds the GPU against
# the CPU's kernels: forward passes, gradients, losses, optimizer steps and generation, in float32 and bfloat16. Needs CMake, Ninja,
# a C++20 compiler, GoogleTest (package libgtest-dev, or its source in $GYRE_GTEST_SOURCE) and a GPU; neither Go nor nvcc.
#
#   scripts/gpu-check.sh [build folder, build-gpu if left out]
#
# Exit status 0: every test ran on the GPU and passed.
set -euo pipefail
cd "$(dirname "$0")/.."
build="${1:-build-gpu}"
say() { printf 'gpu-check: %s\n' "$*"; }
die() { printf 'gpu-check: error: %s\n' "$*" >&2; exit 1; }

torch="${LIBTORCH:-$(python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")')}"
[ -n "$torch" ] || die "no torch: pip install torch, or set LIBTORCH to a libtorch with CUDA"
[ -e "$torch/lib/libtorch_cuda.so" ] || die "$torch has no CUDA (lib/libtorch_cuda.so): install a CUDA build of torch"
command -v nvidia-smi >/dev/null && say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader)"
say "torch: $torch"

cmake -S . -B "$build" -G Ninja -DGYRE_CUDA=ON -DLIBTORCH="$torch" ${GYRE_GTEST_SOURCE:+-DGYRE_GTEST_SOURCE="$GYRE_GTEST_SOURCE"}
cmake --build "$build" --target gyre_tests || die "the build failed (a missing target gyre_tests means that there is no GoogleTest)"

log="$build/gpu-check.log"
status=0
"$build/gyre_tests" --gtest_filter='*Device*' | tee "$log" || status=$?
if grep -q 'SKIPPED.*/cuda' "$log"; then die "tests were skipped: the GPU could not be used, the log says why"; fi
[ "$status" = 0 ] || die "tests failed: see $log"
say "the GPU agrees with the CPU's kernels: $(grep -c 'OK \].*/cuda' "$log") tests"
