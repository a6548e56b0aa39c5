# Every path is relative, so that the clone may lie under a path with spaces.
PYTHON ?= $(shell command -v python3.11 >/dev/null && echo python3.11 || echo python3)
VENV_PYTHON := .venv/bin/python

.PHONY: help env quickstart test lint format gate clean distclean
.DEFAULT_GOAL := help

help: ## Says what there is to make
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 14

env: ## .venv with the hetfeat command in it; quick when nothing changed
	@sh tools/environment.sh "$(PYTHON)"

quickstart: env ## The whole loop on this machine: train, promote, deploy ResNet-18
	$(VENV_PYTHON) -m registry.quickstart

test: env ## The tests; make test ARGS="-k store" runs some of them
	$(VENV_PYTHON) -m pytest $(ARGS)

lint: env ## What the gate checks without running tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(VENV_PYTHON) -m mypy
	.venv/bin/lint-imports --no-logo

format: env ## Rewrites the sources as the gate wants them
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

gate: lint test ## What must pass before a change lands, here and in CI

clean: ## Removes what builds and tests leave, keeps .venv
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## Removes .venv, too
	rm -rf .venv
