#!/usr/bin/env bash
# The compiler of scripts/fuzz.py: the stable one, with what libFuzzer needs to see which way an input takes. For the workspace's
# own crates alone: their dependencies are those of every other build.
# usage (by cargo): SHARDMILL_FUZZ_ENGINE=FOLDER scripts/fuzz-rustc.sh RUSTC ARGUMENTS...
set -euo pipefail
case " $* " in
  # A build script or a macro runs in the build, where there is no libFuzzer; and cargo asks for the compiler's properties.
  *' --crate-name build_script_'* | *' --crate-type proc-macro '* | *' --print='*) exec "$@" ;;
esac
exec "$@" \
  -C passes=sancov-module \
  -C llvm-args=-sanitizer-coverage-level=4 \
  -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
  -C llvm-args=-sanitizer-coverage-pc-table \
  -C llvm-args=-sanitizer-coverage-trace-compares \
  -C debug-assertions=on \
  -C overflow-checks=on \
  -L "native=$SHARDMILL_FUZZ_ENGINE"
