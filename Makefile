# make demo and make test are the two commands a newcomer needs; both install what they use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test kernel-test lint format bench front clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "flamegov needs Python >= 3.10; run: make PYTHON=/path/to/python3.10 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python's venv module is missing; install it first: sudo apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (once; a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[build,bench,fuse,dev]'
	@touch $@

demo: setup
	$(BIN)/flamegov demo

test: setup
	$(BIN)/python -m pytest

kernel-test: setup
	$(BIN)/python -m tests.kernel

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/flamegov bench paper --quick
	$(BIN)/flamegov bench overhead

# the tables and the figure that the pages show: a minute for README.md, ten for bench/README.md
front: setup
	$(BIN)/flamegov bench paper --quick --report bench/results/quick.html --readme README.md
	$(BIN)/flamegov bench paper --readme bench/README.md

clean:
	rm -rf $(VENV) .cache build dist results .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
