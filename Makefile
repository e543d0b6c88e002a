# Two commands do everything on a fresh machine: `make run` (the main job) and `make test` (the tests before a commit).
# Each target sets up .venv from the frozen list and reinstalls nothing that is already there.
PYTHON ?= python3
REQUIREMENTS ?= requirements/cpu.txt
BIN := .venv/bin
STAMP := .venv/.installed

# One thread per process: two spinning OpenMP threads on two busy cores are slower than two processes.
export OMP_NUM_THREADS ?= 1
# Byte-compile at installation and at first import; otherwise every start of a stage is slow.
unexport PYTHONDONTWRITEBYTECODE
export PIP_ROOT_USER_ACTION = ignore
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: run test test-slow quick lint setup golden coverage fuzz chaos clean

run: setup
	$(BIN)/lethe run

# Three workers on two cores: many tests wait for processes and servers.
PYTEST = $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Some six minutes on two idle cores. The checks of `make lint` take one core for a minute and run beside the tests; what they
# print comes at the end. A shell lets a command in the background ignore Ctrl-C, hence the trap.
test: setup
	$(MAKE) --no-print-directory lint > .venv/lint.log 2>&1 & lint=$$!; \
	trap "kill $$lint" INT TERM; \
	$(PYTEST) -m "not slow"; tests=$$?; \
	wait $$lint; checks=$$?; cat .venv/lint.log; exit $$((tests > checks ? tests : checks))

# The rest, some twenty-five minutes: laws that show over many draws, and whole flows with their processes, workers, presets,
# studies, vLLM, Chromium.
test-slow: setup
	$(PYTEST) -m slow

# The library alone, while one works on it.
quick: setup
	$(PYTEST) -m "not slow" tests/lethe

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# A .venv that is a link, or that was copied from another folder, would install into that folder.
setup:
	@if [ -L .venv ] || { [ -e .venv ] && ! grep -qsF '$(CURDIR)/.venv' .venv/bin/activate; }; then \
	  echo ".venv is a link or belongs to another folder: remove it, then run 'make setup' again." >&2; exit 2; fi
	@$(MAKE) --no-print-directory $(STAMP)

# Configure DVC for this machine (whether this is a git repository; plots on a page that needs no network), then import what a
# run imports: two processes so byte-compile some 6,000 of 30,000 files; the others compile where something first imports them.
define PREPARE
from pathlib import Path; from flows import prefect_settings, workspace; here = Path.cwd(); \
workspace.prepare(here); prefect_settings.prepare(here); \
import flows.pipeline, prefect.server.api.server, dvc.repo.reproduce, lethe.report.page, lethe.tracking.runs
endef
$(STAMP): $(REQUIREMENTS) requirements/install.py pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python requirements/install.py $(REQUIREMENTS)
	mkdir -p .lethe
	$(BIN)/python -c 'from flows.warm import load; load()' & $(BIN)/python -c '$(PREPARE)' && wait
	touch $(STAMP)
	@echo "Ready. 'make run' runs the demonstration. After '. .venv/bin/activate', 'lethe --help' lists the commands."

# Whether this machine's demonstration in data/ has the committed bytes; exit status 1 names what differs.
golden: setup
	$(BIN)/python -m tests.golden

# Further benchmarks and checks: `.venv/bin/python -m tests.benchmarks --list`.
coverage: setup
	$(BIN)/python -m tests.benchmarks coverage

# Hours. KIND (logs, or folders and tables, whose cases are whole commands), CASES, SEED and MINUTES choose others.
SEED ?= 0
KIND ?= logs
fuzz: setup
	$(BIN)/python -m tests.benchmarks fuzz --kind $(KIND) --cases $(or $(CASES),$(if $(filter logs,$(KIND)),1000000,2000)) --seed $(SEED) $(if $(MINUTES),--minutes $(MINUTES))

# Half an hour on two cores; a second call continues. PIPELINE=stages: the real stages instead of light ones.
chaos: setup
	$(BIN)/python -m tests.benchmarks chaos --cases $(or $(CASES),50) --seed $(SEED) --pipeline $(or $(PIPELINE),light) $(if $(MINUTES),--minutes $(MINUTES))

clean:
	rm -rf .venv build *.egg-info
