# The two commands of the README are `make demo` and `make test`; each sets up its own .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types bench lessons figures clean
demo: $(STAMP)  ## calibrate this machine, predict, run for real, compare
	$(BIN)/llmsim demo

test: $(STAMP)  ## the whole test suite
	$(BIN)/pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)  ## the speed figures; never part of the tests
	$(BIN)/pytest tests/benchmarks --benchmark-enable --benchmark-only

clean:
	rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[kernels,lessons,dev]'
	touch $(STAMP)
