# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
CONSTRAINTS := -c constraints.txt
PIP := -m pip --disable-pip-version-check install --quiet $(CONSTRAINTS)
TORCH := torch==2.13.0
SOURCES := $(shell find src -type f -name '*.py' -o -type f -path 'src/*' -name '*.md' -o -path 'src/*' -name '*.css' -o -path 'src/*' -name '*.js')

.PHONY: help demo test check docs bench torture clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP) $(TORCH)
	.venv/bin/python $(PIP) -e '.[torch,recipes]'
	touch $@

demo: .venv/installed ## install into .venv, train on handwritten digits, say where the report is
	.venv/bin/truestep train digits --out runs/digits --resume auto

.venv-test/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/python $(PIP) $(TORCH)
	.venv-test/bin/python $(PIP) build hatchling
	.venv-test/bin/python $(PIP) '.[torch,recipes,plot,graph,onnx,tensorboard,docs,dev]'
	touch $@

.venv-test/wheel: .venv-test/installed pyproject.toml README.md $(SOURCES)
	rm -rf dist && .venv-test/bin/python -m build --wheel --no-isolation > /dev/null
	.venv-test/bin/python -m pip --disable-pip-version-check install --quiet --force-reinstall --no-deps dist/truestep-*.whl
	touch $@

test: .venv-test/wheel ## run every test against the built wheel, in an environment of its own
	OMP_NUM_THREADS=1 TRUESTEP_TEST_WHEEL=1 .venv-test/bin/python -m pytest -q -n 2 --dist loadgroup -m 'not slow and not gpu' $(ARGS)

check: .venv-test/wheel ## ruff, mypy --strict and the documentation, warnings as errors
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy
	$(MAKE) --no-print-directory docs

docs: .venv-test/wheel ## build the documentation into docs/_build/html
	.venv-test/bin/sphinx-build -n -W --keep-going -q -b html docs docs/_build/html

torture: .venv-test/wheel ## the long tests: kills, damage, faults (hours)
	.venv-test/bin/python -m pytest -q -m slow $(ARGS)

bench: .venv-test/wheel ## measure against other libraries (in .venv-bench) and print the tables
	$(MAKE) -C benchmarks all

clean: ## remove environments and everything built
	rm -rf .venv .venv-test .venv-bench dist build docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
