#!/usr/bin/env bash
# Makes sure that GoogleTest is there, which the proofs of the C++ engine are written in: finds it, or installs it with the package manager
# of this machine, or fails with what to install. `make test-cpp` runs it.
#
# Looked for: the compiler's own paths and CPATH, CMAKE_PREFIX_PATH, GYRE_GTEST_SOURCE or /usr/src/googletest (sources), Homebrew's prefix.
set -euo pipefail

source="${GYRE_GTEST_SOURCE:-/usr/src/googletest}"
cxx="${CXX:-$(command -v c++ || command -v g++ || command -v clang++)}"

found() {
  [ -f "$source/CMakeLists.txt" ] && return 0
  local prefix prefixes="${CMAKE_PREFIX_PATH:-}"
  for prefix in ${prefixes//[:;]/ } "$(brew --prefix googletest 2>/dev/null || true)"; do
    [ -n "$prefix" ] && [ -f "$prefix/include/gtest/gtest.h" ] && return 0
  done
  "$cxx" -x c++ -std=c++20 -E - >/dev/null 2>&1 <<<'#include <gtest/gtest.h>' # no pipe: who ends it early would look like an error
}

found && exit 0

manager='' install=()
if command -v apt-get >/dev/null; then manager=apt-get install=(apt-get install -y -qq libgtest-dev)
elif command -v dnf >/dev/null; then manager=dnf install=(dnf install -y -q gtest-devel)
elif command -v zypper >/dev/null; then manager=zypper install=(zypper --non-interactive install gtest)
elif command -v pacman >/dev/null; then manager=pacman install=(pacman -S --noconfirm --needed gtest)
elif command -v apk >/dev/null; then manager=apk install=(apk add gtest-dev)
elif command -v brew >/dev/null; then manager=brew install=(brew install googletest)
fi

if [ -n "$manager" ]; then
  sudo=()
  if [ "$manager" != brew ] && [ "$(id -u)" != 0 ]; then sudo=(sudo -n); fi
  if [ ${#sudo[@]} = 0 ] || sudo -n true 2>/dev/null; then
    echo "setup: installing GoogleTest: ${install[*]}"
    if [ "$manager" = apt-get ]; then ${sudo[@]+"${sudo[@]}"} apt-get update -qq || true; fi
    ${sudo[@]+"${sudo[@]}"} "${install[@]}" || true
    found && exit 0
  fi
fi

{
  echo "setup: error: GoogleTest is not installed, and the C++ tests need it"
  if [ -n "$manager" ]; then echo "       Install it: sudo ${install[*]}" | sed 's/sudo brew/brew/'
  else echo "       Install it (Debian: libgtest-dev, Fedora: gtest-devel, Homebrew: googletest)"; fi
  echo "       or set GYRE_GTEST_SOURCE to a copy of its sources. \`make test-go\` runs the Go tests alone."
} >&2
exit 1
