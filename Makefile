# Every target sets up what it needs: a virtual environment in .venv from the project's own files.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Two torch threads on contended cores are many times slower than one.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
export TOKENIZERS_PARALLELISM ?= false

.PHONY: quickstart test lint types rules unit venv bench-influence bench-seeds anchor clean

quickstart: venv
	$(BIN)/infuser quickstart

test: lint types rules unit

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy

rules: venv
	$(BIN)/lint-imports

unit: venv
	$(BIN)/pytest -n 2

bench-influence: venv
	$(BIN)/python tests/bench/influence.py

bench-seeds: venv
	$(BIN)/python tests/bench/seeds.py

anchor: venv
	$(BIN)/infuser nano build build/anchor

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed: set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV)
