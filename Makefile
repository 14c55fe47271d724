# Two commands: `make train` and `make test`. Both set up .venv first if it is missing or its lock has changed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps setup train test unit e2e e2e-algorithms chaos lint types format bench bench-check gpu-check doctor docs docker container-check peers lock clean distclean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# A driver that answers decides; ACCELERATOR=cpu or ACCELERATOR=cuda overrules it.
ifndef ACCELERATOR
ACCELERATOR := $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
endif
LOCK := requirements/$(ACCELERATOR).lock
# The package index that has the CPU build of torch, where pip's own finds none; PyTorch's installation page names it.
TORCH_INDEX ?=
# HASHES=no takes packages of an index that has other files than the lock was made from.
HASHES ?=
LOCK_HASH := $(shell cat $(LOCK) requirements/base.in 2>/dev/null | sha256sum | cut -c1-16)
STAMP := $(VENV)/.installed-$(LOCK_HASH)
EDITABLE := $(VENV)/.editable-$(LOCK_HASH)
ARGS ?=
MARKERS := -m "not whole_recipe$(if $(filter cpu,$(ACCELERATOR)), and not gpu)"
# `make test` runs this many tests side by side, those of a file in one process, for they share what they start. What
# measures time, or needs a GPU to itself, comes afterwards. pytest's status 5: ARGS left nothing of one of the two.
JOBS ?= 2
SIDE_BY_SIDE := not alone and not gpu and not whole_recipe
ALONE := $(if $(filter cpu,$(ACCELERATOR)),alone and not gpu,alone or gpu)
SLOWEST := --durations=20 --durations-min=5  # ARGS=--record-durations keeps them in tests/durations.json
# Written out in a recipe, $(MAKE) would make `make -n test` run the tests instead of printing the commands.
AGAIN := $(MAKE) --no-print-directory
UNIT_MARKERS := -m "not slow and not gpu"

help:  ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  \033[1m%-15s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(EDITABLE)  ## make .venv from the lock (cpu or cuda); a second run installs nothing

deps: $(STAMP)

$(STAMP):
	@[ -f $(LOCK) ] || { echo "found ACCELERATOR=$(ACCELERATOR), expected cpu or cuda: there is no $(LOCK)."; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "found no $(PYTHON). As root, this installs all that is needed:"; \
		sed -nE '/^    (apt-get|dnf) install /p' README.md | head -2; \
		echo "or name a Python, 3.11 or newer: make setup PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "found $$($(PYTHON) --version), need Python 3.11 or newer. Name another one: make setup PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m verl_like.machine --accelerator $(ACCELERATOR) --venv $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m requirements.install $(ACCELERATOR) --torch-index "$(TORCH_INDEX)" $(if $(filter no,$(HASHES)),--no-hashes)
	@rm -f $(VENV)/.installed-* $(VENV)/.editable-*
	@touch $@

$(EDITABLE): $(STAMP) setup.py pyproject.toml
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

train: setup  ## teach a small model arithmetic by GRPO; ARGS="trainer.seed=2 algorithm=ppo"
	$(BIN)/python -m recipes.arithmetic.train $(ARGS)

test: setup  ## lint, types and every test this machine can run, two at a time; JOBS=1 where memory is short
	@failed=0; ran=0; \
	$(AGAIN) lint || failed=1; \
	$(AGAIN) types || failed=1; \
	$(BIN)/python -m pytest tests -m "$(SIDE_BY_SIDE)" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(SLOWEST) $(ARGS); \
	case $$? in 0) ran=1 ;; 5) ;; *) failed=1 ;; esac; \
	$(BIN)/python -m pytest tests -m "$(ALONE)" $(SLOWEST) $(ARGS); \
	case $$? in 0) ran=1 ;; 5) ;; *) failed=1 ;; esac; \
	[ $$failed = 0 ] && [ $$ran = 1 ]

unit: setup  ## only the tests without Ray and vLLM (about ten minutes on two cores; ARGS="-k hub" is some of them)
	$(BIN)/python -m pytest tests/unit tests/graders tests/migrate tests/spec $(UNIT_MARKERS) $(ARGS)

e2e: setup  ## only the tests on the real stack
	$(BIN)/python -m pytest tests/ray tests/e2e $(MARKERS) $(ARGS)

chaos: setup  ## break the real stack in every stage and process, with a table (a run or two for each case; ARGS="--only rollout")
	$(BIN)/python -m benchmarks.chaos $(ARGS)

e2e-algorithms: setup  ## the arithmetic recipe with adapters and under seven algorithms, with a table of results (about 20 minutes)
	$(BIN)/python -m pytest tests/e2e -m whole_recipe
	$(BIN)/python -m recipes.arithmetic.algorithms $(ARGS)

lint: setup  ## ruff: rules and form
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check --quiet . || { echo "some files are not in form: run make format"; exit 1; }

types: setup  ## mypy, strict outside the backends
	@$(BIN)/python -m mypy

format: setup  ## let ruff lay the code out and fix what it can: order of imports, outdated idioms
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

bench: setup  ## run every benchmark; ARGS go to each
	@set -e; for file in benchmarks/[a-z]*.py; do \
		name=$$(basename $$file .py); echo "== $$name"; $(BIN)/python -m benchmarks.$$name $(ARGS); \
	done

bench-check: setup  ## run benchmarks and hold their ratios against benchmarks/floors.toml (ARGS="update rollout": only these)
	@PYTHONPATH=.peers $(BIN)/python -m benchmarks._check $(ARGS)

gpu-check: setup  ## check what only a GPU can show, in eight minutes, with a table (ARGS="--device cpu" is a dry run)
	@$(BIN)/python -m benchmarks.gpu_check $(ARGS)

doctor: setup  ## what is installed, what is missing, and the command that mends it
	@$(BIN)/verl-like doctor

docs: setup  ## make a site of the documentation, and say where it lies
	@# Not --quiet: with it, --strict sees no warnings. Material's banner about MkDocs 2 is none about our pages.
	@NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict
	@echo "$(CURDIR)/build/site/index.html"

docker: ## build the images verl-like:cpu and verl-like:cuda
	docker build -f docker/Dockerfile --target cpu -t verl-like:cpu .
	docker build -f docker/Dockerfile --target cuda -t verl-like:cuda .

container-check: setup  ## as root: the image for cpu, tried in a bare Debian without Docker (eight minutes, 5 GiB)
	@$(BIN)/python -m tests.tools.container_check $(if $(TORCH_INDEX),--build-arg TORCH_INDEX=$(TORCH_INDEX)) $(ARGS)

peers: setup  ## put other projects beside, in .peers, for benchmarks that compare (PYTHONPATH=.peers)
	@# With --no-deps nothing here shadows what .venv has; the other lines are what these three import and .venv lacks.
	@$(PIP) install --quiet --no-deps --upgrade --target .peers verl==0.9.1 trl==1.16.0 TransferQueue==0.1.11 \
		tensordict==0.10.0 pyvers==0.1.0 orjson==3.13.0 codetiming==1.4.0 \
		accelerate==1.15.0 datasets==5.2.0 pandas==3.1.1 xxhash==4.1.0 multiprocess==0.70.19 torchdata==0.11.0
	@# Their settings are read out of their packages (benchmarks/_peer_trees.py).
	@for package in $(addprefix verl==,0.4.0 0.4.1 0.5.0 0.6.0 0.6.1 0.7.0 0.7.1 0.8.0 0.9.0 0.9.1) openrlhf==0.11.2; do \
		$(PIP) download --quiet --no-deps --dest .peers/wheels $$package || exit 1; done

lock: setup  ## resolve requirements/*.in anew (see requirements/README.md)
	$(BIN)/python requirements/make_lock.py cpu cuda

clean:  ## remove caches, build output and outputs/, but not .venv
	rm -rf outputs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## also remove .venv and .peers
	rm -rf $(VENV) .peers
