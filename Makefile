# Everything a newcomer needs: `make demo` and `make test`. Python 3.10 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test bounds coverage wheel docs lint format types setup browser clean help

help:  ## Say what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## Make .venv with exact versions

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("rgcn needs Python 3.10 or newer; call make PYTHON=python3.11") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
# Bytecode, which pip would make first, on one core, and the kernels on another.
	$(BIN)/python -m compileall -qq $(VENV)/lib & $(BIN)/python -m rgcn.kernels.ahead && wait
	@touch $@

demo: $(STAMP)  ## Ask the embedded graph without training, then train, side by side
	$(BIN)/python tools/demo.py

test: lint types  ## Lint, check types, run every test
	@$(BIN)/python tools/install_browser.py
	$(BIN)/python -m pytest -n 2 --dist worksteal

bounds: $(STAMP)  ## Run the tests with the lowest versions that pyproject.toml allows (torch: the pinned one)
	$(BIN)/python tools/bounds.py

coverage: $(STAMP)  ## Run the tests and print which lines of src/ they run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[coverage]'
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term:skip-covered

wheel: $(STAMP)  ## Build the wheel, install it in a new environment and ask it a question
	rm -rf dist .venv-wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd dist && ../.venv-wheel/bin/rgcn predict world --subject Switzerland --relation exports_to -k 3

docs: $(STAMP)  ## Build the site in docs/_build/html; chapters run, warnings and broken links are errors
	$(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html
	@echo "open docs/_build/html/index.html"

browser: $(STAMP)  ## Install Debian's Chromium, for the tests of the explorer page
	@$(BIN)/python tools/install_browser.py --always

lint: $(STAMP)  ## Look for mistakes and untidy code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## Check types
	$(BIN)/mypy

format: $(STAMP)  ## Tidy the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove what make made
	rm -rf $(VENV) .venv-bounds .venv-wheel .mypy_cache .ruff_cache .hypothesis build dist docs/_build
