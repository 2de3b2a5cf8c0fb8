# Everything that can be built and tested. `make demo` and `make test` do all their set-up themselves.

SHELL := /bin/bash
CARGO_FLAGS := --locked --release --workspace
ARGS ?=

.PHONY: help setup build plugins demo test test-all lint fmt deny clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: ## what the build needs beside Rust
	@scripts/prerequisites.sh
	@scripts/wasm-toolchain.sh >/dev/null

# One command for the binary and the tests: the same packages and features, so nothing is compiled twice.
build: setup ## the binary target/release/shardmill, and the tests
	cargo build $(CARGO_FLAGS) --lib --bins --tests

plugins: setup ## the plugins and the tests' guests, as components in target/plugins
	@scripts/build-guests.sh

demo: build plugins ## the demo; ARGS="--minutes 60", ARGS=--follow
	target/release/shardmill demo $(ARGS)

test: build plugins lint ## every promise of the README: unit, property, doc and end-to-end tests
	cargo test $(CARGO_FLAGS) --no-fail-fast

test-all: test deny ## the same, and the slow ones
	PROPTEST_CASES=5000 cargo test $(CARGO_FLAGS) --no-fail-fast --lib

lint: build ## formatting and clippy, warnings as errors
	@scripts/lint.sh

fmt: ## format the code
	cargo fmt --all

deny: ## licences, bans and sources of dependencies
	@if command -v cargo-deny >/dev/null; then cargo deny --all-features check bans licenses sources; \
	else echo "deny: cargo-deny is not installed (cargo install cargo-deny); skipped"; fi

clean: ## remove what was built (not the cache)
	cargo clean
