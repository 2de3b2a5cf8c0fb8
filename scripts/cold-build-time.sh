#!/usr/bin/env bash
# Prints how many seconds a build of the binary takes when nothing is there yet (crates are downloaded beforehand).
# usage: scripts/cold-build-time.sh
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo fetch --locked --quiet
SECONDS=0
CARGO_TARGET_DIR=$folder cargo build --release --locked --workspace --bins --quiet
printf '%d s on %d processors\n' "$SECONDS" "$(getconf _NPROCESSORS_ONLN)"
