# make demo | test | test-frameworks | bench | header | install-check | lint
CARGO ?= cargo

.PHONY: build demo test bench header install-check lint

build:
	$(CARGO) build --release

test:
	$(CARGO) test --workspace

header:
	DLRO_WRITE_HEADER=1 $(CARGO) test --quiet --test header

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings

bench: build
	$(CARGO) run --release --quiet --package dlpack_ro_bench --bin exchange
