# Two commands: `make demo` and `make test`. Both create .venv when it is absent and reuse it afterwards.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.fedagent-installed
ALFWORLD := $(VENV)/.fedagent-alfworld
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help setup alfworld demo test fast lint types bench format clean

help:
	@echo "make demo      install if needed, train four shops together, write a report"
	@echo "make alfworld  add the ALFWorld engine"
	@echo "make test      install if needed, then lint, types and all tests"
	@echo "make fast      the tests that need no Ray, vLLM or DeepSpeed process"
	@echo "make bench     the measurements quoted in README.md"

$(STAMP): requirements-cpu.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 13) else "fedagent-ray needs Python 3.11 or 3.12, this is %d.%d; set PYTHON=python3.11" % v)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): about 1 GB, two to six minutes"
	@$(BIN)/python -m pip install --disable-pip-version-check -qq --no-deps -r requirements-cpu.lock
	@$(BIN)/python -m pip install --disable-pip-version-check -qq --no-deps --no-build-isolation -e .
	@touch $(STAMP)

setup: $(STAMP)

$(ALFWORLD): requirements-alfworld.lock $(STAMP)
	@echo "installing the ALFWorld engine into $(VENV): two parts are compiled, about two minutes"
	@$(BIN)/python -m pip install --disable-pip-version-check -qq --no-deps -r requirements-alfworld.lock
	@touch $(ALFWORLD)

alfworld: $(ALFWORLD)

demo: $(STAMP)
	$(BIN)/python -m pipeline.run --run.name demo --model.adapter full $(ARGS)

test: $(ALFWORLD) lint types
	$(BIN)/python -m pytest $(ARGS)

fast: $(ALFWORLD)
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: $(ALFWORLD)
	$(BIN)/mypy

bench: $(ALFWORLD)
	$(BIN)/python -m tests.benchmarks

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache
