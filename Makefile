# Every target does its own set-up: a machine needs Python >= 3.11, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.ready-dev
DOCS := $(VENV)/.ready-docs
MINUTES ?= 60
SEED ?= 0
# What tests compile is small and runs briefly: compiling it well would take longer than it gains.
QUICKLY := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true
# Fusions by XLA's older code take less than half as long to compile. test-all has them as users do.
QUICKER := $(QUICKLY) --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
PARALLEL := --numprocesses auto --dist worksteal
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: train test test-all check docs results bench attack soak dist clean

train: $(READY)  ## a short real CUP training (a few minutes), ending in a table
	$(BIN)/cupola train cup SwimmerSpeed --iterations 150 --out runs/quickstart-$$(date +%Y%m%d-%H%M%S)

test: $(DEV)  ## the tests, in parallel; a few minutes
	XLA_FLAGS="$(QUICKER)" $(BIN)/python -m pytest tests $(PARALLEL) -m "not slow"

test-all: $(DEV)  ## the tests and everything that takes longer: more trainings, a Ray cluster
	XLA_FLAGS="$(QUICKLY)" $(BIN)/python -m pytest tests $(PARALLEL)

check: $(DEV)  ## formatter, linter, types (also as on Windows), import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 src/cupola
	$(BIN)/lint-imports --no-cache

docs: $(DOCS)  ## the documentation site: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "site/index.html"

results: $(READY)  ## every table and figure of results/README.md, from the committed curves; offline
	$(BIN)/python -m results

attack: $(DEV)  ## attacks of all kinds: MINUTES=60 SEED=0; the table goes to runs/attacks-SEED
	$(BIN)/python -m attacks --minutes $(MINUTES) --seed $(SEED) --out runs/attacks-$(SEED)

soak: $(DEV)  ## 20,000 iterations of a tiny training, then two hours of a real one: is memory flat?
	$(BIN)/python -m attacks.soak tiny experiments/results/soak
	$(BIN)/python -m attacks.soak real experiments/results/soak

bench: $(READY)  ## steps a second beside the physics ceiling
	$(BIN)/cupola bench HopperSpeed
	$(BIN)/cupola bench HumanoidSpeed

dist: $(VENV)/dist/.ready  ## wheel and source distribution, checked, tried in an empty environment
	rm -rf dist
	$(VENV)/dist/bin/python -m build --outdir dist .
	$(VENV)/dist/bin/twine check --strict dist/*
	sh .ci/try-wheel "$(PYTHON)" dist

$(VENV)/dist/.ready: .ci/dist.txt
	$(PYTHON) -m venv $(VENV)/dist
	$(VENV)/dist/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

$(READY): pyproject.toml constraints.txt hatch_build.py src/cupola/native/kernels.c
	@$(PYTHON) -c "import sys; sys.version_info >= (3, 11) or sys.exit('cupola needs Python 3.11 or newer: make PYTHON=python3.11')"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(DEV): $(READY)
	$(PIP) --editable ".[dev]"
	@touch $@

$(DOCS): $(READY)
	$(PIP) --editable ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
