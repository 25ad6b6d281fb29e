# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
CONSTRAINTS := -c constraints.txt
PIP := -m pip --disable-pip-version-check install --quiet $(CONSTRAINTS)
TORCH ?= new
SOURCES := docs/zh/mistakes.md $(shell find src -type f -name '*.py' -o -type f -path 'src/*' -name '*.md' -o -path 'src/*' -name '*.css' -o -path 'src/*' -name '*.js')

.PHONY: help demo kill peers official recipes test test-versions test-odd check docs playground wheel bench costs torture torture-programs streams libraries trackers new-check new-error new-clip room clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# of what pip says: the files that it fetches, with their sizes
FETCHED = awk '/^ *(Downloading|Using cached) / && !/[.]metadata/ { print; fflush() }'
SITE = import site; print(site.getsitepackages()[0])
HOME_OF_TORCH = import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv
ifeq ($(TORCH),existing)
	@$(PYTHON) -c '$(HOME_OF_TORCH)' > "$$(.venv/bin/python -c '$(SITE)')/existing.pth"
	@.venv/bin/python -c 'import torch; print("Using PyTorch", torch.__version__, "of", torch.__file__)'
	@echo 'Installing Truestep, and what else it needs, into .venv. pip fetches:'
	@.venv/bin/python -m pip --disable-pip-version-check install -e '.[torch,recipes]' | $(FETCHED)
else
	@echo 'Installing PyTorch, Truestep and scikit-learn into .venv (make demo TORCH=existing uses the PyTorch you have). pip fetches:'
	@.venv/bin/python -m pip --disable-pip-version-check install $(CONSTRAINTS) torch | $(FETCHED)
	@.venv/bin/python -m pip --disable-pip-version-check install $(CONSTRAINTS) -e '.[torch,recipes]' | $(FETCHED)
endif
	@touch $@

demo: .venv/installed ## install into .venv, train on handwritten digits, say where the report is
	.venv/bin/truestep train digits --out runs/digits --resume auto

kill: .venv/installed ## train twice, kill one at random moments, compare what they end with (a minute or two)
	.venv/bin/python tools/kill.py

peers: ## measure what other libraries do where Truestep makes a promise (installs them into .venv-bench)
	$(MAKE) --no-print-directory -C benchmarks peers

official: ## read official tutorials and reference code (MIRRORS=folder of git mirrors WORK=folder): each bug must be settled
	PYTHONPATH=src $(PYTHON) benchmarks/doctor/official.py --mirrors $(MIRRORS) --work $(WORK)

recipes: .venv/installed ## train every recipe to its goal, over three seeds (an hour or two)
	.venv/bin/python benchmarks/recipes.py

.venv-test/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/python $(PIP) torch
	.venv-test/bin/python $(PIP) build hatchling
	.venv-test/bin/python $(PIP) '.[torch,recipes,plot,graph,onnx,tensorboard,docs,dev]'
	touch $@

.venv-test/wheel: .venv-test/installed pyproject.toml README.md $(SOURCES)
	rm -rf dist && .venv-test/bin/python -m build --wheel --no-isolation > /dev/null
	.venv-test/bin/python -m pip --disable-pip-version-check install --quiet --force-reinstall --no-deps dist/truestep-*.whl
	touch $@

# what tests write lies in memory where the system allows it: a disk's fsync takes some milliseconds, thousands of times
SCRATCH = $$(mktemp -d -p "$$(test -w /dev/shm && echo /dev/shm || echo "$${TMPDIR:-/tmp}")" truestep-tests.XXXXXX)

# what is dear comes in turn, and ten days' draws hold every test (tests/support/turns.py); what is asked for by ARGS comes whole
DRAW ?= $(if $(ARGS),,$(shell echo $$(($$(date +%s) / 86400))))

test: .venv-test/wheel ## run a draw of all tests, the day's, against the built wheel, in an environment of its own
	scratch=$(SCRATCH); trap 'rm -rf "$$scratch"' EXIT; TMPDIR="$$scratch" PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TRUESTEP_TEST_WHEEL=1 TRUESTEP_TEST_DRAW=$(DRAW) .venv-test/bin/python -m pytest -q -n 2 --max-worker-restart=0 --dist loadgroup -m 'not slow and not gpu' $(ARGS)

room: .venv-test/installed ## one room's tests on the code as it stands, and its types: make room ROOM=checkpoints ARGS="-x -k save"
	PYTHONPATH=src OMP_NUM_THREADS=1 .venv-test/bin/python -m pytest -q -m 'not slow and not gpu' tests/$(ROOM) $(ARGS)
	.venv-test/bin/dmypy run --

# the newest torch, with torchvision (a build for CUDA, as most people have it), and the oldest that pyproject.toml admits
VERSIONS ?= newest oldest
TORCH_newest := torch==2.14.1 torchvision==0.29.1
TORCH_oldest := torch==2.11.0

test-versions: $(VERSIONS:%=test-torch-%) ## run the tests with the newest and the oldest torch, each in an environment of its own

.venv-torch-%/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-torch-$*
	grep -v '^torch==' constraints.txt > .venv-torch-$*/constraints.txt
	.venv-torch-$*/bin/python -m pip --disable-pip-version-check install --quiet $(TORCH_$*)
	.venv-torch-$*/bin/python -m pip --disable-pip-version-check install --quiet -c .venv-torch-$*/constraints.txt \
		$(TORCH_$*) '.[torch,recipes,plot,graph,onnx,tensorboard,docs,dev]'
	touch $@

.PRECIOUS: .venv-torch-%/installed

test-torch-%: .venv-torch-%/installed .venv-test/wheel
	.venv-torch-$*/bin/python -m pip --disable-pip-version-check install --quiet --force-reinstall --no-deps dist/truestep-*.whl
	scratch=$(SCRATCH); trap 'rm -rf "$$scratch"' EXIT; TMPDIR="$$scratch" PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TRUESTEP_TEST_WHEEL=1 TRUESTEP_TEST_DRAW=$(DRAW) .venv-torch-$*/bin/python -m pytest -q -n 2 --max-worker-restart=0 --dist loadgroup -m 'not slow and not gpu' $(ARGS)

# where people run it, and the tests seldom do; tools/odd.py says what each is
ODD ?= bare lang tz tmpdir umask files ignored user

test-odd: $(ODD:%=test-odd-%) ## run the tests in each of eight odd environments (ODD="lang tz" chooses some, ODD=together all at once; -k goes on after a failure)

test-odd-%: .venv-test/wheel
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TRUESTEP_TEST_WHEEL=1 TRUESTEP_TEST_DRAW=$(DRAW) .venv-test/bin/python tools/odd.py $* .venv-test/bin/python -m pytest -q -p no:cacheprovider -n 2 --max-worker-restart=0 --dist loadgroup -m 'not slow and not gpu' $(ARGS)

check: .venv-test/wheel ## ruff, mypy --strict and the documentation, warnings as errors
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy
	for system in win32 darwin; do .venv-test/bin/mypy --config-file tools/mypy_elsewhere.ini --cache-dir .mypy_cache/$$system --platform $$system || exit 1; done
	$(MAKE) --no-print-directory docs

wheel: .venv-test/wheel ## build dist/truestep-*.whl
	@ls dist/truestep-*.whl

docs: .venv-test/wheel ## build the documentation into docs/_build/html
	.venv-test/bin/sphinx-build -n -W --keep-going -q -b html docs docs/_build/html

torture: .venv-test/wheel ## what `make test` left out, and the long tests: kills, damage, faults (hours)
	TRUESTEP_TEST_DRAW=$(DRAW) .venv-test/bin/python -m pytest -q -m slow $(ARGS)

costs: .venv-test/installed ## measure what each test costs, on a quiet machine, for tests/costs.txt: make costs ARGS=tests/cli
	PYTHONPATH=src:tests OMP_NUM_THREADS=1 .venv-test/bin/python -m pytest -q -p support.costs -m 'not slow and not gpu' $(ARGS)

SLICE ?= 0
MINUTES ?= 60

torture-programs: .venv-test/wheel ## hold three laws over 200 drawn programs: make torture-programs SLICE=3; the tally is build/programs.json
	scratch=$(SCRATCH); trap 'rm -rf "$$scratch"' EXIT; TMPDIR="$$scratch" PYTHONPATH=tests PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TRUESTEP_TEST_WHEEL=1 .venv-test/bin/python -m programs.torture $(SLICE) --minutes $(MINUTES)

# two of the libraries ask for what can't stand beside the others: tests/libraries/constraints.txt says what
STREAMS := tests/libraries/constraints.txt
STREAM_PAGES := docs/howto/sharded-data.md docs/howto/streamed-data.md
.venv-streams/installed: pyproject.toml $(STREAMS)
	$(PYTHON) -m venv .venv-streams
	.venv-streams/bin/python -m pip --disable-pip-version-check install --quiet -c $(STREAMS) torch
	.venv-streams/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r $(STREAMS)
	touch $@

streams: .venv-streams/installed .venv-test/wheel ## train on the data of each library, kill and compare: make streams SLICE=3; the tally is build/streams.json
	.venv-streams/bin/python -m pip --disable-pip-version-check install --quiet --force-reinstall --no-deps dist/truestep-*.whl
	scratch=$(SCRATCH); trap 'rm -rf "$$scratch"' EXIT; export TMPDIR="$$scratch" PYTHONPATH=tests PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TRUESTEP_TEST_WHEEL=1; \
		for page in $(STREAM_PAGES); do .venv-streams/bin/python -m libraries.page $$page; done; \
		.venv-streams/bin/python -m libraries.torture $(SLICE) --minutes $(MINUTES)

# where a page says that a block needs a package: it runs there; what asks for older packages than there are, and runs without
LIBRARIES := tests/libraries/others.txt
LIBRARIES_ALONE := pytorch-forecasting==1.8.0 scikit-base==1.2.0
LIBRARY_PAGES := docs/howto/other-libraries.md docs/howto/reinforcement-learning.md
.venv-libraries/installed: pyproject.toml constraints.txt $(LIBRARIES)
	$(PYTHON) -m venv .venv-libraries
	.venv-libraries/bin/python $(PIP) torch
	.venv-libraries/bin/python $(PIP) '.[torch]' -r $(LIBRARIES)
	.venv-libraries/bin/python $(PIP) --no-deps $(LIBRARIES_ALONE)
	touch $@

# torchvision allows one release of torch, which is not the one that is pinned
LIBRARIES_VISION := torch==2.14.1 torchvision==0.29.1 timm==1.0.31
.venv-libraries-vision/installed: pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv .venv-libraries-vision
	grep -v '^torch==' constraints.txt > .venv-libraries-vision/constraints.txt
	.venv-libraries-vision/bin/python -m pip --disable-pip-version-check install --quiet -c .venv-libraries-vision/constraints.txt '.[torch]' $(LIBRARIES_VISION)
	touch $@

libraries: .venv-libraries/installed .venv-libraries-vision/installed .venv-test/wheel ## train beside other libraries, kill and compare, and run the blocks of pages that need them, in an environment of its own (minutes)
	for each in .venv-libraries .venv-libraries-vision; do $$each/bin/python -m pip --disable-pip-version-check install --quiet --force-reinstall --no-deps dist/truestep-*.whl; done
	scratch=$(SCRATCH); trap 'rm -rf "$$scratch"' EXIT; export TMPDIR="$$scratch" PYTHONPATH=tests OMP_NUM_THREADS=1; \
		.venv-libraries/bin/python -m libraries.blocks $(LIBRARY_PAGES); \
		.venv-libraries/bin/python -m libraries.others $(ARGS); \
		.venv-libraries-vision/bin/python -m libraries.others timm

TRACKERS := wandb==0.31.0 mlflow==3.17.2
.venv-trackers/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-trackers
	.venv-trackers/bin/python $(PIP) torch
	.venv-trackers/bin/python -m pip --disable-pip-version-check install --quiet '.[torch]' $(TRACKERS)
	touch $@

trackers: .venv-trackers/installed .venv-test/wheel ## kill trainings that tell wandb and MLflow, offline, and compare what these have (ten minutes)
	.venv-trackers/bin/python -m pip --disable-pip-version-check install --quiet --force-reinstall --no-deps dist/truestep-*.whl
	scratch=$(SCRATCH); trap 'rm -rf "$$scratch"' EXIT; TMPDIR="$$scratch" PYTHONPATH=tests OMP_NUM_THREADS=1 WANDB_SILENT=true .venv-trackers/bin/python -m libraries.trackers

PYODIDE := pyodide@314.0.7
PLAYGROUND := docs/_build/html/playground

playground: docs ## build the docs with the page that reads code in the browser (needs npm)
	mkdir -p build/pyodide && cd build/pyodide && npm pack --silent $(PYODIDE) > /dev/null && tar -xzf pyodide-*.tgz
	.venv-test/bin/python docs/playground/build.py dist/truestep-*.whl build/pyodide/package $(PLAYGROUND)
	@echo "serve it with: python -m http.server --directory docs/_build/html; then open http://localhost:8000/playground/"

new-check: ## start a check of the doctor: make new-check TOPIC=loss NAME=LossSummed [KIND=read|watch|probe]
	$(PYTHON) tools/scaffold.py check $(TOPIC) $(NAME) --kind $(or $(KIND),read)

new-error: ## start an explained error: make new-error TOPIC=cuda NAME=DeviceLost
	$(PYTHON) tools/scaffold.py error $(TOPIC) $(NAME)

new-clip: ## start a kind of clipping: make new-clip NAME=ClipToMedian
	$(PYTHON) tools/scaffold.py clip $(NAME)

bench: .venv-test/wheel ## measure against other libraries (in .venv-bench) and print the tables
	$(MAKE) -C benchmarks all

clean: ## remove environments and everything built
	rm -rf .venv .venv-test .venv-bench .venv-trackers .venv-libraries .venv-libraries-vision .venv-torch-* dist build docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
