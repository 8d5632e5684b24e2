# Every target makes its own virtual environment first; `make demo` and `make test` are all a fresh clone needs.
#   make PYTHON=python3.12 test     another interpreter

PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv demo bench bench-packing test test-full check format clean

help:
	@echo "make demo       real text to an extended model and a report, on 2 CPU cores"
	@echo "make bench      context-parallel attention beside other packages"
	@echo "make bench-packing  packing beside its targets"
	@echo "make test       the tests that take seconds, and which ten of them take longest"
	@echo "make test-full  all tests"
	@echo "make check      ruff and mypy"
	@echo "make format     let ruff rewrite what it can"
	@echo "make clean      remove caches and build outputs; runs/ and $(VENV) stay"

venv: $(INSTALLED)

$(INSTALLED): pyproject.toml setup.py constraints.txt
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "AnchorContext needs Python 3.11 or newer (found: '$(PYTHON)'). Name one: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing torch, transformers, deepspeed and the rest into $(VENV): some minutes, without further output."
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/python examples/demo/run.py

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.context_parallel

bench-packing: $(INSTALLED)
	$(BIN)/python -m benchmarks.packing

test: $(INSTALLED)
	$(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist worksteal --durations 10 --durations-min 1

test-full: $(INSTALLED)
	$(BIN)/python -m pytest --hypothesis-profile thorough

check: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
