#!/usr/bin/env bash
# Checks what the build needs from the machine; installs it where that is possible without asking, else says how.
# usage: scripts/prerequisites.sh [rustfmt|clippy|c++|node|python|java|maven]     without a name: what every build needs
set -euo pipefail

readonly minimum_rust=1.95 # as rust-version in Cargo.toml
readonly minimum_node=18
readonly minimum_python=3.11 # tests/emulators/ministack/requirements.txt lacks what older ones need besides
readonly minimum_java=17

missing() {
  printf 'missing: %s\nwhat to do: %s\n' "$1" "$2" >&2
  exit 1
}

# Where nobody has to be asked: as root on a Debian.
apt_install() {
  local what=$1
  shift
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
  echo "installing $what (apt-get)" >&2
  apt-get -qq update >&2 && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y "$@" >&2
}

is_at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# ring and SQLite hold C code.
need_c_compiler() {
  if command -v cc >/dev/null; then return; fi
  if [ "$(uname)" = Darwin ]; then missing "a C compiler" "xcode-select --install"; fi
  if apt_install "a C compiler" gcc libc6-dev; then return; fi
  missing "a C compiler (cc)" "Debian: sudo apt-get install gcc libc6-dev; elsewhere the package of gcc or clang"
}

# libFuzzer is C++.
need_cxx_compiler() {
  if command -v c++ >/dev/null; then return; fi
  if [ "$(uname)" = Darwin ]; then missing "a C++ compiler" "xcode-select --install"; fi
  if apt_install "a C++ compiler" g++; then return; fi
  missing "a C++ compiler (c++)" "Debian: sudo apt-get install g++; elsewhere the package of g++ or clang"
}

need_rust() {
  local version
  if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    missing "Rust" "install it with rustup (https://rustup.rs), then open a new shell"
  fi
  version=$(rustc --version | awk '{ print $2 }')
  if ! is_at_least "$minimum_rust" "$version"; then
    missing "Rust $minimum_rust or newer (this is $version)" "rustup update stable"
  fi
}

# Not on the path by itself: rustup puts a proxy there also for components that are not installed.
need_component() {
  local component=$1 command=$2
  if "$command" --version >/dev/null 2>&1; then return; fi
  if command -v rustup >/dev/null && rustup component add "$component" >&2; then return; fi
  missing "$component" "rustup component add $component"
}

has_node() { command -v node >/dev/null && command -v npm >/dev/null; }

need_node() {
  local version
  has_node || apt_install "Node.js and npm" nodejs npm || true
  if ! has_node; then
    missing "Node.js and npm, for emulators that the tests use" "Debian: sudo apt-get install nodejs npm; elsewhere Node.js $minimum_node or newer"
  fi
  version=$(node --version)
  if ! is_at_least "$minimum_node" "${version#v}"; then
    missing "Node.js $minimum_node or newer (this is $version)" "put a newer one before it on the PATH"
  fi
}

# Debian has ensurepip in a package of its own.
has_python() { command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null; }

need_python() {
  local version
  has_python || apt_install "Python with venv" python3 python3-venv || true
  if ! has_python; then
    missing "Python with venv and ensurepip, for an emulator that the tests use" "Debian: sudo apt-get install python3-venv; elsewhere Python $minimum_python or newer"
  fi
  version=$(python3 -c 'import platform; print(platform.python_version())')
  if ! is_at_least "$minimum_python" "$version"; then
    missing "Python $minimum_python or newer (python3 is $version)" "put a newer one before it on the PATH"
  fi
}

# Not on the path alone: macOS has commands that only say that there is no Java.
has_java() { javac -version >/dev/null 2>&1 && java -version >/dev/null 2>&1; }

need_java() {
  local version
  has_java || apt_install "a JDK" default-jdk-headless || true
  if ! has_java; then
    missing "a JDK (java and javac), for the KCL that tests run against" "Debian: sudo apt-get install default-jdk-headless; elsewhere a JDK $minimum_java or newer on the PATH"
  fi
  version=$(javac -version 2>&1 | awk '{ print $2 }')
  if ! is_at_least "$minimum_java" "$version"; then
    missing "a JDK $minimum_java or newer (javac is $version)" "put a newer one before it on the PATH"
  fi
}

need_maven() {
  command -v mvn >/dev/null || apt_install "Maven" maven || true
  if ! command -v mvn >/dev/null; then
    missing "Maven, for the KCL that tests run against" "Debian: sudo apt-get install maven; elsewhere mvn of Maven 3.6 or newer on the PATH"
  fi
}

case ${1:-build} in
  build)
    need_c_compiler
    need_rust
    ;;
  rustfmt) need_component rustfmt rustfmt ;;
  c++) need_cxx_compiler ;;
  clippy) need_component clippy clippy-driver ;;
  node) need_node ;;
  python) need_python ;;
  java) need_java ;;
  maven) need_maven ;;
  *) missing "a rule for $1" "see the usage in scripts/prerequisites.sh" ;;
esac
