#!/usr/bin/env bash
# What takes too long for `make test`: five million integers through producer, processor and output stream; the memory of 64
# full shards, and of a worker under a constant load for so many minutes; then the tests of crashes, takeovers, failures,
# resharding and order over and over until as much time is up again; then chaos, two minutes a seed, until as much time is up
# once more.
# usage: MINUTES=10 RECORDS=5000000 scripts/soak.sh CARGO_TEST_FLAGS...
set -euo pipefail
minutes=${MINUTES:-10}
cargo build "$@" --quiet --bin shardmill-reliability
# Each soak has keys of its own; the first line of the run tells with which seed.
"${CARGO_TARGET_DIR:-target}/release/shardmill-reliability" --records "${RECORDS:-5000000}" --seed "$(date +%s)"
SOAK_SECONDS=$((60 * minutes)) cargo test "$@" --quiet --test memory -- --ignored --nocapture --test-threads 1
end=$((SECONDS + 60 * minutes))
rounds=0
while [ "$SECONDS" -lt "$end" ]; do
  SHARDMILL_TEST_SEEDS=4 cargo test "$@" --quiet --test crash --test takeover --test reshard --test failure --test order
  rounds=$((rounds + 1))
  printf 'soak: %d rounds passed, %d s left\n' "$rounds" $((end > SECONDS ? end - SECONDS : 0))
done
end=$((SECONDS + 60 * minutes))
# Each soak has seeds of its own; a failure tells which one, and how to repeat it.
seed=$(date +%s)
while [ "$SECONDS" -lt "$end" ]; do
  SHARDMILL_TEST_SEED=$seed SHARDMILL_CHAOS_SECONDS=120 cargo test "$@" --quiet --test chaos -- --nocapture
  seed=$((seed + 1))
  printf 'soak: chaos, %d s left\n' $((end > SECONDS ? end - SECONDS : 0))
done
