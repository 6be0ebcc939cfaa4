# Hoop's tasks. `make help` lists them.

.DEFAULT_GOAL := help
.PHONY: help install setup demo demo-run demo-web screenshots bench figures quick test lint book sbom fmt fuzz kill powercut vectors capi router static

help: ## Lists these tasks
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

install: ## Builds hoop, and puts it and its systemd units below PREFIX=… (default /usr/local)
	@dist/install $(or $(PREFIX),/usr/local)

setup: ## Installs what the tests, the demo and the benchmark need (only what is missing)
	@tools/setup

demo: setup ## Drops an upload at a gateway, walks away, and shows what became of it (FILE=… for your own)
	@demo/run $(if $(FILE),"$(FILE)")

demo-run: setup ## Loses the network in the middle of a download, with plain curl and then with `hoop run -- curl`
	@demo/flows

demo-web: setup ## Starts a photo wall with sign-in, and says what to try in your own browser (ASK=1: with Chromium's question)
	@demo/web

screenshots: setup ## Takes pictures of every page and state, into .cache/screenshots (ONLY="card bridge" for some)
	@cargo build --quiet -p hoop
	@node tests/browser/screenshots.js $(ONLY)

bench: setup ## Measures, and prints each figure next to its limit (ONLY="…" for some of the benchmarks)
	@bench/run $(ONLY)

figures: setup ## Measures and draws the figures of docs/figures again (takes some minutes)
	@bench/run background budget

quick: ## Checks format and lints, and runs unit and model tests: no root, no browser (two minutes when warm)
	@tools/test format clippy tree quick

test: ## Runs every test, and ends with the line `N passed, N failed`
	@tools/setup || { echo '0 passed, 1 failed'; exit 1; }
	@tools/test

lint: ## Checks format, lints, docs, scripts, licences, and known vulnerabilities of dependencies (cargo-deny, which needs the network)
	@tools/test format clippy doc scripts licences
	@command -v cargo-deny >/dev/null || { echo 'cargo-deny is missing: cargo install --locked cargo-deny'; exit 1; }
	@cargo deny check

book: ## Builds the docs as a book with search, into target/book (needs mdbook)
	@tools/book

sbom: ## Writes what the program is built from to target/hoop.cdx.json (CycloneDX)
	@mkdir -p target && tools/sbom > target/hoop.cdx.json && echo target/hoop.cdx.json

fmt: ## Formats the Rust code
	@cargo fmt --all

fuzz: ## Fuzzes the parsers of foreign bytes (TARGET=… for one, SECONDS=… for each); needs a nightly compiler
	@fuzz/run $(or $(SECONDS),60) $(TARGET)

kill: ## Kills gateway, service and both, CYCLES=… times, in a lab with losses (SEED=… repeats the choices)
	@cargo build --quiet -p hoop
	@HOOP_CYCLES=$(or $(CYCLES),200) $(if $(SEED),HOOP_SEED=$(SEED)) cargo test -p hoop-testbed --test kill -- --nocapture --test-threads=1

powercut: ## Cuts the power of a spool, of a service's state and of a store of flows at any point, CYCLES=… records (SEED=… repeats a run)
	@HOOP_CYCLES=$(or $(CYCLES),100) $(if $(SEED),HOOP_SEED=$(SEED)) cargo test -p hoop-spool -p hoop-service -p hoop-flow-store --test powercut -- --nocapture

vectors: ## Makes the shared test vectors again
	@cargo run --quiet -p hoop-seal --example make-vectors

capi: ## Builds libd2tp, and puts it, its headers, man page and pkg-config file below PREFIX=… (default /usr/local)
	@capi/install $(or $(PREFIX),/usr/local)

router: ## Builds the gateway alone, small and static, into target/router/hoop
	@tools/static gateway

static: ## Builds the whole program, static, into target/static/hoop
	@tools/static hoop
