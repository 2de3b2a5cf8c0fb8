#!/usr/bin/env bash
# The compiler of scripts/run-tests.py: clippy, which finds fault with the workspace's own crates and makes their code in one go.
# usage (by cargo): scripts/test-compiler.sh RUSTC ARGUMENTS...
#
# No optimisation: these programs are compiled far longer than they run. The binary that they start is the one of `make build`.
set -euo pipefail
exec clippy-driver "$@" -C opt-level=0
