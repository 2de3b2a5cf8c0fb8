#!/usr/bin/env bash
# Checks what the build needs from the machine; installs it where that is possible without asking, else says how.
# usage: scripts/prerequisites.sh [rustfmt|clippy]     without a name: what every build needs
set -euo pipefail

readonly minimum_rust=1.95 # as rust-version in Cargo.toml

missing() {
  printf 'missing: %s\nwhat to do: %s\n' "$1" "$2" >&2
  exit 1
}

# ring and SQLite hold C code.
need_c_compiler() {
  if command -v cc >/dev/null; then return; fi
  if [ "$(uname)" = Darwin ]; then missing "a C compiler" "xcode-select --install"; fi
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "installing a C compiler (apt-get)" >&2
    if apt-get -qq update >&2 && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y gcc libc6-dev >&2; then
      return
    fi
  fi
  missing "a C compiler (cc)" "Debian: sudo apt-get install gcc libc6-dev; elsewhere the package of gcc or clang"
}

need_rust() {
  local version
  if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    missing "Rust" "install it with rustup (https://rustup.rs), then open a new shell"
  fi
  version=$(rustc --version | awk '{ print $2 }')
  if [ "$(printf '%s\n%s\n' "$minimum_rust" "$version" | sort -V | head -n 1)" != "$minimum_rust" ]; then
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

case ${1:-build} in
  build)
    need_c_compiler
    need_rust
    ;;
  rustfmt) need_component rustfmt rustfmt ;;
  clippy) need_component clippy clippy-driver ;;
  *) missing "a rule for $1" "see the usage in scripts/prerequisites.sh" ;;
esac
