# The two commands of the README are `make demo` and `make test`; each sets up its own .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test lint types format bench figures lessons lock clean
help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 10

demo: $(STAMP)  ## calibrate this machine, predict, run for real, compare
	$(BIN)/llmsim demo

test: $(STAMP)  ## the whole test suite
	$(BIN)/python -m pytest

lint: $(STAMP)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## type check
	$(BIN)/mypy

format: $(STAMP)  ## mend what can be mended of the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## the speed figures; never part of the tests
	$(BIN)/python -m pytest tests/benchmarks --benchmark-enable --benchmark-only

figures: $(STAMP)  ## rebuild all figures
	$(BIN)/llmsim figures

lessons: $(STAMP)  ## execute all lessons into their notebooks
	$(BIN)/python lessons/build.py

lock: $(STAMP)  ## write constraints.txt anew from what .venv holds
	@grep '^#' constraints.txt > $(VENV)/lock
	$(BIN)/python -m pip freeze --all --exclude-editable --exclude pip | sed 's/+.*//' | sort -f >> $(VENV)/lock
	mv $(VENV)/lock constraints.txt

clean:  ## remove .venv and all caches
	rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache .benchmarks

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "llmsim needs Python 3.11 or later; name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[kernels,lessons,dev]'
	touch $(STAMP)
