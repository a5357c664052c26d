#!/usr/bin/env bash
# Checks the prerequisites and finds or installs libtorch; `make setup` runs it. Safe to run again at any time: finished stages are
# skipped, an interrupted download or unpacking starts that stage over and leaves nothing half-made behind.
#
# libtorch, in this order:
#   1. $LIBTORCH (a folder with include/ and lib/), or $Torch_DIR (its share/cmake/Torch)
#   2. the torch of the active Python, if its version is one Gyre builds against (2.11 to 2.15)
#   3. our own pinned download, kept in ${XDG_CACHE_HOME:-~/.cache}/gyre so that a second clone downloads nothing
# The choice is written to build/libtorch.path, where CMake reads it. GYRE_PLATFORM=Linux-aarch64 fetches 3. for another kind of machine and
# prints where it lies.
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.13.0
cache="${XDG_CACHE_HOME:-$HOME/.cache}/gyre"
python="${PYTHON:-python3}"

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$1" >&2; shift; for line in "$@"; do printf '       %s\n' "$line" >&2; done; exit 1; }

# ---- prerequisites ---------------------------------------------------------------------------------------------
missing=()
command -v go >/dev/null || missing+=("Go 1.26 or newer (package golang, or from go.dev)")
command -v cmake >/dev/null || missing+=("CMake 3.22 or newer (package cmake)")
cxx="${CXX:-$(command -v c++ || command -v g++ || command -v clang++ || true)}"
if [ -z "$cxx" ]; then
  missing+=("a C++20 compiler (package g++, version 11 or newer, or clang 14)")
else
  probe=$(mktemp -d)
  printf '#include <span>\n#include <concepts>\nint main() { int a[2] = {}; std::span<int> s(a); return (int)s.size() - 2; }\n' >"$probe/p.cc"
  "$cxx" -std=c++20 -o "$probe/p" "$probe/p.cc" 2>/dev/null || missing+=("a compiler that knows C++20: $cxx does not (package g++, version 11 or newer)")
  rm -rf "$probe"
fi
if [ ${#missing[@]} -gt 0 ]; then
  die "these prerequisites are missing:" "${missing[@]/#/- }" "Install them and run make setup again."
fi

here="$(uname -s)-$(uname -m)"
platform="${GYRE_PLATFORM:-$here}"

accept() { # accept DIR: does it hold a libtorch we can link?
  [ -f "$1/include/ATen/ATen.h" ] && ls "$1"/lib/libtorch_cpu.* >/dev/null 2>&1 && ls "$1"/lib/libc10.* >/dev/null 2>&1
}
choose() { # choose DIR WHY
  if [ "$platform" != "$here" ]; then printf '%s\n' "$1"; exit 0; fi
  mkdir -p build
  if [ "$(cat build/libtorch.path 2>/dev/null)" != "$1" ]; then printf '%s\n' "$1" >build/libtorch.path; fi
  say "libtorch: $1 ($2)"
  exit 0
}

# ---- 1. named by the environment --------------------------------------------------------------------------------
if [ "$platform" != "$here" ]; then
  LIBTORCH='' Torch_DIR=''
fi
if [ -n "${LIBTORCH:-}" ]; then
  accept "$LIBTORCH" || die "LIBTORCH=$LIBTORCH is not a libtorch" "expected include/ATen/ATen.h and lib/libtorch_cpu.* there; correct the path or unset LIBTORCH"
  choose "$LIBTORCH" "from LIBTORCH"
fi
if [ -n "${Torch_DIR:-}" ]; then
  root=$(cd "$Torch_DIR/../../.." 2>/dev/null && pwd || true)
  if [ -z "$root" ] || ! accept "$root"; then die "Torch_DIR=$Torch_DIR does not lie in a libtorch" "expected …/share/cmake/Torch; correct the path or unset Torch_DIR"; fi
  choose "$root" "from Torch_DIR"
fi

# ---- 2. the active Python's ------------------------------------------------------------------------------------
if [ "$platform" = "$here" ] && command -v "$python" >/dev/null; then
  found=$("$python" - <<'PY' 2>/dev/null || true
import importlib.util, re
spec = importlib.util.find_spec("torch")
if spec and spec.submodule_search_locations:
    root = spec.submodule_search_locations[0]
    text = open(root + "/version.py").read()
    major, minor = map(int, re.search(r"__version__ = '(\d+)\.(\d+)", text).groups())
    if major == 2 and 11 <= minor <= 15:
        print(root)
PY
  )
  if [ -n "$found" ] && accept "$found"; then choose "$found" "the torch of $python"; fi
fi

# ---- 3. our own ------------------------------------------------------------------------------------------------
home="$cache/libtorch-$version"
[ "$platform" = "$here" ] || home="$home-$platform"
has_licences() { [ -z "${GYRE_LICENCES:-}" ] || ls "$home"/torch-*.dist-info >/dev/null 2>&1; } # make dist packs them; older caches lack them
if [ -f "$home/.complete" ] && accept "$home/torch" && has_licences; then choose "$home/torch" "installed before"; fi

command -v "$python" >/dev/null || die "no libtorch and no Python to download one with" \
  "Install Python 3 with pip, or unpack a libtorch $version yourself and set LIBTORCH to it."
"$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip, which downloads libtorch" \
  "Install it (package python3-pip, or $python -m ensurepip), or unpack a libtorch $version yourself and set LIBTORCH to it."

# wheel, pip platform, sha256: one wheel per platform whatever Python runs this, since only its C++ part is used
case "$platform" in
  Linux-x86_64)
    wheels=("torch==$version manylinux_2_28_x86_64 60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7"
      "nvidia-cuda-runtime==13.0.96 manylinux_2_17_x86_64 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
      "nvidia-cuda-cupti==13.0.85 manylinux_2_25_x86_64 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8") ;;
  Linux-aarch64)
    wheels=("torch==$version manylinux_2_28_aarch64 092790c696a760c729fd5722835f50b9d81fd7c8f141571f3f3cf4081a8f664c"
      "nvidia-cuda-runtime==13.0.96 manylinux_2_17_aarch64 ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55"
      "nvidia-cuda-cupti==13.0.85 manylinux_2_25_aarch64 796bd679890ee55fb14a94629b698b6db54bcfd833d391d5e94017dd9d7d3151") ;;
  Darwin-arm64)
    wheels=("torch==$version macosx_14_0_arm64 e76f9bcecc52b8ff711239a2f7547d5353df95878ab232f0773c1d95928b92f8") ;;
  *) die "no pinned libtorch for $platform" "Unpack a libtorch 2.11 to 2.15 for it and set LIBTORCH to that folder." ;;
esac

digest() { "$python" -c 'import hashlib,sys; h=hashlib.sha256(); f=open(sys.argv[1],"rb")
while b:=f.read(1<<22): h.update(b)
print(h.hexdigest())' "$1"; }

mkdir -p "$cache/download"
files=()
for entry in "${wheels[@]}"; do
  read -r package tag sha <<<"$entry"
  file="$cache/download/$sha.whl"
  if [ ! -f "$file" ]; then
    say "downloading $package for $tag" >&2
    part=$(mktemp -d "$cache/download/part.XXXXXX")
    trap 'rm -rf "$part"' EXIT
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 --abi none \
      --platform "$tag" --platform "${tag/_2_17_/2014_}" --dest "$part" "$package" ||
      die "downloading $package failed" "Check the network and pip's index settings, then run make setup again (finished downloads are kept)."
    got=$(digest "$part"/*.whl)
    [ "$got" = "$sha" ] || die "$package has the wrong checksum" "expected sha256 $sha" "got             $got" "Nothing was installed. Try again; if it persists, the index serves another file."
    mv "$part"/*.whl "$file"
    rm -rf "$part"
  fi
  files+=("$file")
done

say "unpacking into $home" >&2
rm -rf "$home".part.*
part="$home.part.$$"
trap 'rm -rf "$part"' EXIT
mkdir -p "$part"
"$python" - "$part" "${files[@]}" <<'PY' || die "unpacking failed" "Is the disk full? About 700 MB are needed under $cache."
import os, sys, zipfile
# headers and the CPU libraries; the CUDA halves of the wheel (half a gigabyte) stay packed
keep_lib = ("libtorch_cpu.", "libc10.", "libgomp", "libomp", "libtorch_global_deps", "libtorch.", "libarm_compute", "libnvpl", "libgfortran")
target = sys.argv[1]
for wheel in sys.argv[2:]:
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            base = os.path.basename(name)
            if name.startswith("torch/lib/"):
                if "/" in name[len("torch/lib/"):] or not base.startswith(keep_lib):
                    continue
            elif ".dist-info/" in name:
                if not base.upper().startswith(("LICENSE", "LICENCE", "NOTICE")):
                    continue
            elif not name.startswith(("torch/include/", "nvidia/", "torch.libs/")):
                continue
            z.extract(name, target)
PY
accept "$part/torch" || die "the unpacked wheel lacks libtorch_cpu, libc10 or the headers" "Please report this with the output of uname -a."
: >"$part/.complete"
rm -rf "$home"
mv "$part" "$home"
trap - EXIT
rm -rf "$cache/download"
choose "$home/torch" "installed just now"
