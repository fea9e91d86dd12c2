# The two commands of the README. Each makes .venv with the pinned versions and needs nothing but Python and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test install lint fast slow nightly jobs clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/python -m flareclust.flows.demo

test: lint fast slow

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fast: install
	$(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile

slow: install
	$(BIN)/python -m pytest -m slow

# The long fuzzing runs of docs/fuzzing.md; those with atheris where it is installed (Linux).
nightly: install
	$(BIN)/python -m pytest -m nightly -s

# Writes nvflare_jobs/ anew; tests/test_jobs.py fails while it differs from the registry.
jobs: install
	$(BIN)/python -m flareclust.nvflare_jobs

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
