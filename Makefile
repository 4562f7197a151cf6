# The chores. `make` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup test check format bench docs ci

help:  ## list the chores
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup:  ## install for development into the active virtual environment
	python -m pip install torch==2.13.0 && python -m pip install -e ".[dev]"

test:  ## run the tests
	python -m pytest

check:  ## style, types, architecture
	ruff check . && ruff format --check . && mypy && lint-imports

format:  ## format the code
	ruff check --fix . ; ruff format .

bench:  ## measure what recording and copying cost, as ratios within one run
	python benchmarks/recording.py

docs:  ## make the generated pages again
	python -m tether.report.rulebook > docs/rulebook.md
	python docs/make_verdict_pages.py

ci:  ## what CI runs, from a clean checkout
	bash .ci/run
