#!/usr/bin/env bash
# Sees to what the build needs beside Rust: a C compiler (for ring and SQLite). Quick when all is there.
# usage: scripts/prerequisites.sh
set -euo pipefail

fail() {
  printf 'prerequisites: %s\n' "$1" >&2
  printf 'prerequisites: what to do: %s\n' "$2" >&2
  exit 1
}

command -v cargo >/dev/null || fail "there is no cargo" "install Rust with rustup (https://rustup.rs), 1.95 or newer"

need=1.95.0
have=$(rustc --version | awk '{ print $2 }')
oldest=$(printf '%s\n%s\n' "$need" "${have%%-*}" | sort -V | head -n 1)
[ "$oldest" = "$need" ] || fail "Rust $have is too old, $need is needed" "rustup update"

if ! command -v cc >/dev/null; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    printf 'prerequisites: installing a C compiler (apt-get install gcc libc6-dev)\n' >&2
    apt-get -qq update >&2 && apt-get -qq install -y gcc libc6-dev >&2 ||
      fail "apt-get could not install a C compiler" "see the error above, then run this again"
  else
    fail "there is no C compiler (cc)" "Debian: sudo apt-get install gcc libc6-dev; macOS: xcode-select --install"
  fi
fi
