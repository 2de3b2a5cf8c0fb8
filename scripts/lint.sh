#!/usr/bin/env bash
# Clippy over the whole workspace; warnings are errors.
# usage: scripts/lint.sh CARGO_BUILD_FLAGS...
#
# `cargo clippy` checks without building, for which it would go through all dependencies once more. As the compiler of
# the workspace's own crates in an ordinary build, clippy uses the dependencies that are there (see lint-driver.sh).
set -euo pipefail
# The form in which cargo-clippy hands arguments to its driver.
export CLIPPY_ARGS='-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__'
RUSTC_WORKSPACE_WRAPPER=$(cd "$(dirname "$0")" && pwd)/lint-driver.sh
export RUSTC_WORKSPACE_WRAPPER
exec cargo build "$@" --all-targets --keep-going
