# Every target does its own set-up: a machine needs Python >= 3.11, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.ready-dev
PARALLEL := --numprocesses auto --dist worksteal
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: train test test-all check bench clean

train: $(READY)  ## a short real CUP training (a few minutes), ending in a table
	$(BIN)/cupola train cup SwimmerSpeed --iterations 150 --out runs/quickstart-$$(date +%Y%m%d-%H%M%S)

test: $(DEV)  ## the tests, in parallel; a few minutes
	$(BIN)/python -m pytest tests $(PARALLEL) -m "not slow"

test-all: $(DEV)  ## the tests and everything that takes longer: more trainings, a Ray cluster
	$(BIN)/python -m pytest tests $(PARALLEL)

check: $(DEV)  ## formatter, linter, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY)  ## steps a second beside the physics ceiling
	$(BIN)/cupola bench HopperSpeed
	$(BIN)/cupola bench HumanoidSpeed

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.version_info >= (3, 11) or sys.exit('cupola needs Python 3.11 or newer: make PYTHON=python3.11')"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(DEV): $(READY)
	$(PIP) --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
