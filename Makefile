# The only entry point: people and CI call the same targets.
#
# Every cargo call names the whole workspace and the release profile: cargo then picks the same features for each
# dependency, and the demo, the tests and the lints share one build of them. The tests are built by clippy: `lint` alone is for
# those who want to know before.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

TARGET := $(or $(CARGO_TARGET_DIR),target)
CARGO_FLAGS := --release --locked --workspace
PHASE := scripts/phase.sh
ifndef SHARDMILL_STARTED
export SHARDMILL_STARTED := $(shell date +%s)
endif

.PHONY: help setup emulators build plugins demo test test-all fmt fmt-check lint deny bench chaos reliability soak simulate kcl fuzz clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## What the build needs: C compiler, Rust, the target wasm32-wasip2 (`make test` and `make demo` call it)
	@$(PHASE) setup
	@scripts/prerequisites.sh
	@scripts/wasm-toolchain.sh >/dev/null

emulators: ## What else the tests need: independent emulators of Kinesis and DynamoDB, from npm and PyPI (`make test` calls it)
	@$(PHASE) emulators
	@scripts/emulators.sh

build: setup ## The binary: target/release/shardmill
	@$(PHASE) build
	@cargo build $(CARGO_FLAGS) --bin shardmill

plugins: setup ## The processors and the tests' guests: target/plugins/*.wasm
	@$(PHASE) plugins
	@scripts/build-guests.sh

demo: build plugins ## Flights through a processor, all on this machine (ARGS="--minutes 60" passes arguments)
	@$(PHASE) demo
	@$(TARGET)/release/shardmill demo $(ARGS)

test: fmt-check emulators build plugins ## Format, lints, unit, property, integration and end-to-end tests
	@scripts/prerequisites.sh clippy
	@$(PHASE) tests
	@scripts/run-tests.py $(CARGO_FLAGS)

test-all: deny test fuzz kcl simulate soak ## Everything: `test`, the dependencies' licences, fuzzing, the KCL, simulations, long property tests, and the soak
	@$(PHASE) "long property tests"
	@PROPTEST_CASES=5000 cargo test $(CARGO_FLAGS) --lib

fmt: ## Format the code
	@cargo fmt --all

fmt-check: setup
	@$(PHASE) format
	@scripts/prerequisites.sh rustfmt
	@cargo fmt --all --check

lint: setup ## Clippy and rustc, warnings are errors
	@$(PHASE) lint
	@scripts/prerequisites.sh clippy
	@scripts/lint.sh $(CARGO_FLAGS)

deny: ## Licences, sources and advisories of the dependencies (deny.toml), where cargo-deny is installed
	@$(PHASE) deny
	@if command -v cargo-deny >/dev/null; then cargo deny --locked --workspace check; \
	else echo "skipped: there is no cargo-deny (cargo install --locked cargo-deny)"; fi

bench: build plugins ## Figures of this machine: CPU per record, a guest's call, a start (ARGS="--quick", ARGS="start --runs 9")
	@$(PHASE) "build of the benchmarks"
	@cargo build $(CARGO_FLAGS) --bin shardmill-bench
	@$(PHASE) bench
	@$(TARGET)/release/shardmill-bench $(ARGS)

chaos: build plugins ## Workers killed, frozen, cut off and replaced under load, every record accounted for (SEED=7 SECONDS=120)
	@$(PHASE) chaos
	@SHARDMILL_TEST_SEED=$(or $(SEED),$(shell date +%s)) SHARDMILL_CHAOS_SECONDS=$(or $(SECONDS),120) \
		SHARDMILL_CHAOS_KEEP=1 cargo test $(CARGO_FLAGS) --quiet --test chaos -- --nocapture

reliability: build plugins ## Integers through producer, processor and output stream: none missing, repeated or out of order (RECORDS=5000000)
	@$(PHASE) "build of the reliability run"
	@cargo build $(CARGO_FLAGS) --bin shardmill-reliability
	@$(PHASE) reliability
	@$(TARGET)/release/shardmill-reliability --records $(or $(RECORDS),5000000) $(ARGS)

soak: build plugins ## Integers as in `reliability`, memory of many full shards and over time, then crashes, takeovers and resharding over and over, then chaos (MINUTES=10 each)
	@$(PHASE) soak
	@MINUTES=$(or $(MINUTES),10) scripts/soak.sh $(CARGO_FLAGS)

kcl: build plugins ## The real KCL for Java on our lease tables, and we on its (wants a JDK 17 and Maven, and fetches the KCL once)
	@$(PHASE) kcl
	@scripts/kcl.sh >/dev/null
	@cargo test $(CARGO_FLAGS) --test kcl -- --ignored --test-threads 4

simulate: setup ## Fleets on simulated time: thousands of seeded lives under faults, 500 workers on 10,000 shards (SEEDS=2000)
	@$(PHASE) simulate
	@SEEDS=$(or $(SEEDS),2000) cargo test $(CARGO_FLAGS) --test simulation
	@cargo test $(CARGO_FLAGS) --test scale -- --ignored --nocapture

# Of nobody else's: elsewhere TARGET is the folder of what is built.
fuzz: FUZZ_TARGETS := $(if $(filter command,$(origin TARGET)),$(TARGET))
fuzz: setup ## What comes from outside, held to what must be true of it whatever it is (SECONDS=60 TARGET=filter JOBS=2 KEEP=1)
	@$(PHASE) fuzz
	@scripts/prerequisites.sh c++
	@FUZZ_SECONDS=$(or $(SECONDS),60) FUZZ_TARGETS="$(FUZZ_TARGETS)" FUZZ_JOBS=$(or $(JOBS),2) FUZZ_KEEP=$(KEEP) \
		scripts/fuzz.py $(CARGO_FLAGS)

clean: ## Remove what was built (the wasm toolchain in the cache folder stays)
	@cargo clean
