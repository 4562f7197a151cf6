# The chores. `make` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup test rest long check figures format bench docs site versions ci

help:  ## list the chores
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup:  ## install for development into the active virtual environment
	python -m pip install torch==2.13.0 && python -m pip install -e ".[dev]"

test:  ## run the tests
	python -m pytest

rest:  ## run the programs that `make test` leaves out
	python -m pytest --rest

long:  ## run the long laws at their full length (random programs, every operator, fuzzing)
	python -m pytest --long -m long

check:  ## style, types, architecture
	ruff check . && ruff format --check . && mypy && lint-imports

figures:  ## how large, how branched and how scattered the source is
	python tools/figures.py

format:  ## format the code
	ruff check --fix . ; ruff format .

bench:  ## measure what recording and copying cost, as ratios within one run
	python benchmarks/recording.py

docs:  ## make the generated pages again
	python -m tether.report.rulebook > docs/rulebook.md
	python docs/make_pages.py

site:  ## build the documentation as a site in build/site (extra "docs")
	python -m mkdocs build --strict

versions:  ## the smoke suite on every release of PyTorch that the README names
	.ci/versions 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.13.0,numpy==1.26.4 2.14.1 2.15.0
	PYTHON=python3.12 .ci/versions '2.13.0,numpy>=2.5'

ci:  ## what CI runs, from a clean checkout
	bash .ci/run
