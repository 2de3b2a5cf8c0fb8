#!/usr/bin/env bash
# Builds the processors and the tests' guests as WebAssembly components: target/plugins/*.wasm.
# usage: scripts/build-guests.sh
set -euo pipefail
cd "$(dirname "$0")/.."

readonly guests=(flight-delays route guest-rows guest-columnar guest-count guest-poison guest-reach guest-steps)
readonly target=wasm32-wasip2
readonly output=${CARGO_TARGET_DIR:-target}
# A folder of its own: a build of guests neither waits for a build of the host nor changes its features.
readonly build=$output/guests

rustc=$(scripts/wasm-toolchain.sh)
RUSTC=$rustc cargo build --locked --profile guest --target "$target" --target-dir "$build" "${guests[@]/#/--package=}"

mkdir -p "$output/plugins"
for guest in "${guests[@]}"; do
  file=${guest//-/_}.wasm
  # Left alone when it is the same, so that a running host sees no reason to load it again; and replaced at once.
  if ! cmp -s "$build/$target/guest/$file" "$output/plugins/$file"; then
    cp "$build/$target/guest/$file" "$output/plugins/.$file.new"
    mv "$output/plugins/.$file.new" "$output/plugins/$file"
  fi
done
