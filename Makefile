# Everything on a fresh machine with Python 3.11+, make and git: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test lint types tests coverage mutation clean

help: ## what can be made here
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/.run ## a refund agent, a real collector, a scored report
	@$(BIN)/toolverdict demo

test: lint types tests ## every check and every test

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(VENV)/.dev
	$(BIN)/mypy

tests: $(VENV)/.dev
	$(BIN)/pytest -n auto

# Branches alone, since lines are easy: how many of all that scoring takes its tests take, too.
coverage: $(VENV)/.dev ## the branches of scoring that its tests reach: at least 95 %
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto tests/scoring tests/dialects
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include 'scoring/*' --sort cover --skip-covered
	$(BIN)/coverage json --include 'scoring/*' --quiet -o .coverage.json
	@$(BIN)/python -c 'import json, sys; found = json.load(open(".coverage.json"))["totals"]["percent_branches_covered"]; print(f"branches: {found:.1f} %"); sys.exit(found < 95)'

# In a copy, with the package at its top: mutmut names modules by the path of their file.
# Some of it alone: make mutation MUTANTS='toolverdict.scoring.rates.rate.*'
mutation: $(VENV)/.dev ## faults put into the judging of cases: which of them no test notices (hours)
	rm -rf .mutation
	mkdir .mutation
	cp -R scoring/toolverdict tests pyproject.toml .mutation
	cd .mutation && HYPOTHESIS_PROFILE=quick $(abspath $(BIN))/mutmut run $(if $(MUTANTS),'$(MUTANTS)')
	cd .mutation && $(abspath $(BIN))/mutmut results

clean: ## forget the environments, the caches and what the demo left
	rm -rf $(VENV) .venv* demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .mutation .coverage*

$(VENV)/.pip: constraints.txt
	@echo "making $(VENV) (about a minute, once)"
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "toolverdict needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade --constraint constraints.txt pip
	@touch $@

# The native decoder is built by the installation: a change of it is installed again.
$(VENV)/.run: $(VENV)/.pip pyproject.toml collector/build_native.py $(wildcard collector/native/*)
	$(PIP) install --constraint constraints.txt --editable '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install --constraint constraints.txt --group dev
	@touch $@
