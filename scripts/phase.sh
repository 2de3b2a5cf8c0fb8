#!/usr/bin/env bash
# Says that a phase begins, and how long after the start of make.
# usage: SHARDMILL_STARTED=SECONDS_SINCE_1970 scripts/phase.sh NAME
set -euo pipefail
elapsed=$(($(date +%s) - ${SHARDMILL_STARTED:-$(date +%s)}))
printf '=== %02d:%02d %s\n' $((elapsed / 60)) $((elapsed % 60)) "$1"
