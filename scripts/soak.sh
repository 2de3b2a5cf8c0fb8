#!/usr/bin/env bash
# Runs the tests of crashes, takeovers, failures, resharding and order over and over until the time is up.
# usage: MINUTES=10 scripts/soak.sh CARGO_TEST_FLAGS...
set -euo pipefail
end=$((SECONDS + 60 * ${MINUTES:-10}))
rounds=0
while [ "$SECONDS" -lt "$end" ]; do
  SHARDMILL_TEST_SEEDS=4 cargo test "$@" --quiet --test crash --test takeover --test reshard --test failure --test order
  rounds=$((rounds + 1))
  printf 'soak: %d rounds passed, %d s left\n' "$rounds" $((end > SECONDS ? end - SECONDS : 0))
done
