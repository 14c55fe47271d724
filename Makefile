# Two commands: `make train` and `make test`. Both set up .venv first if it is missing or its lock has changed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps setup train test test-all unit e2e e2e-algorithms chaos lint types format bench bench-check gpu-check doctor docs docker container-check peers lock clean distclean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# cuda if the NVIDIA driver responds, else cpu; ACCELERATOR=cpu or ACCELERATOR=cuda overrides this.
ifndef ACCELERATOR
ACCELERATOR := $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
endif
LOCK := requirements/$(ACCELERATOR).lock
# The package index with the CPU build of torch, if pip's default index has none; PyTorch's installation page names it.
TORCH_INDEX ?=
# HASHES=no accepts files of an index that differ from those the lock was made from.
HASHES ?=
LOCK_HASH := $(shell cat $(LOCK) requirements/base.in 2>/dev/null | sha256sum | cut -c1-16)
STAMP := $(VENV)/.installed-$(LOCK_HASH)
EDITABLE := $(VENV)/.editable-$(LOCK_HASH)
ARGS ?=
# `make test` leaves out what is LONG, and `make test-all` runs that alone. Each runs JOBS test files in parallel (tests of
# one file share fixtures, so one process runs them) and then, one by one, the tests that measure time or need a GPU.
JOBS ?= 2
LONG := (slow or nightly)
EXCLUSIVE := $(if $(filter cpu,$(ACCELERATOR)),alone and not gpu,(alone or gpu))
# Files with such tests, so that the second phase does not collect all others.
EXCLUSIVE_FILES = $(shell grep -rlE 'mark\.(alone|gpu)\b' tests --include='test_*.py' | sort)
IN_PARALLEL := --dist loadfile --no-loadscope-reorder
SLOWEST := --durations=20 --durations-min=5  # ARGS=--record-durations saves all to tests/durations.json
# Written directly in a recipe, $(MAKE) would make `make -n test` run the tests instead of printing the commands.
AGAIN := $(MAKE) --no-print-directory
UNIT := tests/unit tests/environments tests/graders tests/migrate tests/spec
# Run the tests of an expression in two phases and set failed=1 if one fails. pytest's status 5: ARGS selected no test.
# OpenMP's threads wait without spinning: there are more of them than cores, and a test of attention took four times as long.
define RUN_TESTS
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest tests -m "$(1) and not alone and not gpu" -n $(JOBS) $(IN_PARALLEL) $(SLOWEST) $(ARGS); \
	case $$? in 0) ran=1 ;; 5) ;; *) failed=1 ;; esac; \
	$(BIN)/python -m pytest $(EXCLUSIVE_FILES) -m "$(1) and $(EXCLUSIVE)" $(SLOWEST) $(ARGS); \
	case $$? in 0) ran=1 ;; 5) ;; *) failed=1 ;; esac
endef

help:  ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  \033[1m%-15s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(EDITABLE)  ## create .venv from the lock (cpu or cuda); a second run installs nothing

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

train: setup  ## train a small model on arithmetic with GRPO; ARGS="trainer.seed=2 algorithm=ppo"
	$(BIN)/python -m recipes.arithmetic.train $(ARGS)

test: setup  ## run lint, types and the tests of all areas, in a quarter of an hour on two cores; JOBS=1 if memory is short
	@failed=0; ran=0; \
	$(AGAIN) lint || failed=1; \
	$(AGAIN) types || failed=1; \
	$(call RUN_TESTS,not $(LONG)); \
	echo "make test-all runs the slow tests, which make test leaves out"; \
	[ $$failed = 0 ] && [ $$ran = 1 ]

test-all: setup  ## run only the slow tests, which make test leaves out, in an hour at most: run both for all tests
	@failed=0; ran=0; \
	$(call RUN_TESTS,$(LONG)); \
	[ $$failed = 0 ] && [ $$ran = 1 ]

unit: setup  ## run only the tests that start no process, in under three minutes (ARGS="-k aggregator" selects some)
	@# torch would start a thread on each core in each of the processes.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(UNIT) -m "not $(LONG) and not processes and not alone and not gpu" --no-processes -n $(JOBS) $(IN_PARALLEL) $(ARGS)

e2e: setup  ## run only the tests of make test on the real stack
	$(BIN)/python -m pytest tests/ray tests/e2e -m "not $(LONG)$(if $(filter cpu,$(ACCELERATOR)), and not gpu)" $(ARGS)

chaos: setup  ## inject a fault into every stage and process of the real stack; print a table (one or two runs per case; ARGS="--only rollout")
	$(BIN)/python -m benchmarks.chaos $(ARGS)

e2e-algorithms: setup  ## run the arithmetic recipe with adapters and with seven algorithms; print a table of results (about 20 minutes)
	$(BIN)/python -m pytest tests/e2e/test_lora.py -m nightly
	$(BIN)/python -m recipes.arithmetic.algorithms $(ARGS)

lint: setup  ## check rules, format and English of code and pages
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check --quiet . || { echo "some files are not in form: run make format"; exit 1; }
	@$(BIN)/python -m tests.tools.english

types: setup  ## run mypy, strict outside the backends
	@$(BIN)/python -m mypy

format: setup  ## format the code with ruff and apply its fixes: import order, outdated idioms
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

bench: setup  ## run every benchmark; ARGS are passed to each
	@set -e; for file in benchmarks/[a-z]*.py; do \
		name=$$(basename $$file .py); echo "== $$name"; $(BIN)/python -m benchmarks.$$name $(ARGS); \
	done

bench-check: setup  ## run benchmarks and check their ratios against benchmarks/floors.toml (ARGS="update rollout": only these)
	@PYTHONPATH=.peers $(BIN)/python -m benchmarks._check $(ARGS)

gpu-check: setup  ## run the checks that need a GPU, in ten minutes; print a table (ARGS="--device cpu" is a dry run)
	@$(BIN)/python -m benchmarks.gpu_check $(ARGS)

doctor: setup  ## report what is installed, what is missing, and the command that fixes it
	@$(BIN)/verl-like doctor

docs: setup  ## build the documentation site and print its path
	@# No --quiet: it would hide warnings from --strict. Material's banner about MkDocs 2 is not about our pages.
	@NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict
	@echo "$(CURDIR)/build/site/index.html"

docker: ## build the images verl-like:cpu and verl-like:cuda
	docker build -f docker/Dockerfile --target cpu -t verl-like:cpu .
	docker build -f docker/Dockerfile --target cuda -t verl-like:cuda .

container-check: setup  ## as root: test the cpu image in a bare Debian without Docker (eight minutes, 5 GiB)
	@$(BIN)/python -m tests.tools.container_check $(if $(TORCH_INDEX),--build-arg TORCH_INDEX=$(TORCH_INDEX)) $(ARGS)

peers: setup  ## install other projects into .peers, for benchmarks and tests that run their code (0.9 GB, four minutes)
	@# With --no-deps nothing here shadows packages of .venv; the others are imports of verl, trl, openrlhf and skyrl-gym that .venv lacks.
	@$(PIP) install --quiet --no-deps --upgrade --target .peers verl==0.9.1 trl==1.16.0 TransferQueue==0.1.11 \
		tensordict==0.10.0 pyvers==0.1.0 orjson==3.13.0 codetiming==1.4.0 \
		accelerate==1.15.0 datasets==5.2.0 pandas==3.1.1 xxhash==4.1.0 multiprocess==0.70.19 torchdata==0.11.0 \
		openrlhf==0.11.2 pylatexenc==2.11 skyrl-gym==0.4.0 func-timeout==4.3.5
	@# These need other versions of mcp, openai and msgspec than .venv has; environment.python names their interpreter.
	@# verifiers runs its harnesses with uv.
	@[ -x .peers/environments/bin/python ] || $(PYTHON) -m venv .peers/environments
	@.peers/environments/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
		verifiers==0.4.0 gem-llm==0.1.0 uv==0.13.9
	@# benchmarks/_peer_trees.py reads the settings out of these packages.
	@for package in $(addprefix verl==,0.4.0 0.4.1 0.5.0 0.6.0 0.6.1 0.7.0 0.7.1 0.8.0 0.9.0 0.9.1) openrlhf==0.11.2; do \
		$(PIP) download --quiet --no-deps --dest .peers/wheels $$package || exit 1; done

lock: setup  ## resolve requirements/*.in again (see requirements/README.md)
	$(BIN)/python requirements/make_lock.py cpu cuda

clean:  ## remove caches, build output and outputs/, but not .venv
	rm -rf outputs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## also remove .venv and .peers
	rm -rf $(VENV) .peers
