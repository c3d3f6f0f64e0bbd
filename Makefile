# make demo | test | test-frameworks | bench | header | install | install-check | lint
CARGO ?= cargo

.PHONY: build demo test test-frameworks bench header install install-check lint

build:
	$(CARGO) build --release

test:
	$(CARGO) test

# What takes large packages: today the one dlpack.h (0.8) that comes only in one of 90 MB.
test-frameworks:
	$(CARGO) test --test headers -- --ignored

header:
	DLRO_WRITE_HEADER=1 $(CARGO) test --quiet --test header

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings

# Ratios against peers in the same run. PyTorch takes part in the copies where `import torch` works.
bench: build target/python
	$(CARGO) run --release --quiet --package dlpack_ro_bench --bin exchange
	PYTHONPATH=target/python:$(PYTHONPATH) $(PYTHON) benches/copies.py target/release/libdlpack_ro.so
	TMPDIR=target PYTHONPATH=target/python:$(PYTHONPATH) $(PYTHON) benches/files.py target/release/libdlpack_ro.so

# The main job on a real file: make demo [FILE=array.npy]
PYTHON ?= python3
DEMO := target/demo
FILE ?= $(DEMO)/activations.npy
STATIC_LIBS := -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc

demo: build target/python $(FILE)
	@$(CC) -std=c11 -D_GNU_SOURCE -O2 -Iinclude examples/demo/demo.c target/release/libdlpack_ro.a $(STATIC_LIBS) -o $(DEMO)/demo
	@$(DEMO)/demo $(FILE)
	@echo; echo "8. The same file handed to NumPy through ctypes and a PyCapsule:"
	@PYTHONPATH=target/python $(PYTHON) examples/demo/numpy_reader.py target/release/libdlpack_ro.so $(FILE)

# NumPy for the demo, without root and without a virtual environment.
target/python:
	@mkdir -p $(DEMO) && rm -rf target/python.new
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --target target/python.new "numpy>=2.1" "safetensors>=0.5" ml_dtypes
	@mv target/python.new target/python

$(DEMO)/activations.npy: | target/python
	@mkdir -p $(DEMO)
	@PYTHONPATH=target/python $(PYTHON) -c 'import numpy as np; np.save("$@", np.random.default_rng(0).standard_normal((4096, 4096), dtype=np.float32))'
# What a user installs, in every way to link it.
install-check:
	$(CARGO) test --test packaging

PREFIX ?= /usr/local
CMAKE ?= cmake
install:
	$(CMAKE) -S cmake -B target/cmake
	$(CMAKE) --build target/cmake
	$(CMAKE) --install target/cmake --prefix "$(PREFIX)"
