#!/usr/bin/env bash
# Builds the plugins and the tests' guests as components into target/plugins.
# usage: scripts/build-guests.sh
set -euo pipefail
cd "$(dirname "$0")/.."

readonly plugins=(flight-delays route)
readonly test_guests=(guest-rows guest-columnar)

RUSTC=$(scripts/wasm-toolchain.sh)
export RUSTC

packages=()
for name in "${plugins[@]}" "${test_guests[@]}"; do packages+=(-p "$name"); done
cargo build --locked --profile guest --target wasm32-wasip2 --target-dir target/guests "${packages[@]}"

mkdir -p target/plugins
for name in "${plugins[@]}" "${test_guests[@]}"; do
  file=${name//-/_}.wasm
  # The date is kept: a component that has not changed is not new to whoever watches the folder.
  cp -p "target/guests/wasm32-wasip2/guest/$file" "target/plugins/$file"
done
