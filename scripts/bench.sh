#!/usr/bin/env bash
# Wall and CPU seconds of a whole run of the demo: 2,699 records in, delays out, emulators included.
# usage: RUNS=5 scripts/bench.sh SHARDMILL
set -euo pipefail
binary=$1
TIMEFORMAT='%R s wall, %U s user, %S s system'
for ((run = 1; run <= ${RUNS:-5}; run++)); do
  printf 'run %d: ' "$run"
  time "$binary" demo --json >/dev/null 2>&1
done
