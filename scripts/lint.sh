#!/usr/bin/env bash
# Formatting and clippy, warnings as errors. Clippy runs as the workspace's compiler in the ordinary profile, so that
# dependencies are taken as they were built and not checked a second time.
# usage: scripts/lint.sh
set -euo pipefail
cd "$(dirname "$0")/.."

for component in rustfmt clippy-driver; do
  command -v "$component" >/dev/null || {
    printf 'lint: there is no %s; what to do: rustup component add rustfmt clippy\n' "$component" >&2
    exit 1
  }
done

cargo fmt --all --check
# What cargo-clippy itself does, but for `build` in place of `check`.
CLIPPY_ARGS='-Dwarnings__CLIPPY_HACKERY__' RUSTC_WORKSPACE_WRAPPER=clippy-driver \
  cargo build --locked --release --workspace --lib --bins --tests
