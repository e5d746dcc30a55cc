# KONGMING: what a developer does with it. `make help` lists the targets.
#
# Every target sets up what it needs: a virtual environment in .venv with the project installed in
# it, the C part built. Only Python 3.11 or newer, a C compiler and make are assumed; nothing needs
# root.

.DEFAULT_GOAL := help
.PHONY: help setup develop system kubernetes wheel site proto lint type imports test thorough test-c sanitize bench demo cluster transcripts pictures observe check lock hashes fuzz clean
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Some containers set it; then each of the processes of a test run compiles every module again.
unexport PYTHONDONTWRITEBYTECODE
# What is imported is compiled then; pip would compile all, one file after the other, which takes
# more than a third of a set-up.
export PIP_NO_COMPILE := 1

# The newest Python that is new enough; PYTHON=... on the command line wins.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# All but Ray, which is large, and which only its tests need: `make develop` has it.
EXTRAS = $(or $(shell sed -n 's/^all = \["kongming\[\(.*\)\]"\]$$/\1/p' pyproject.toml | \
	sed 's/,ray,/,/'),$(error pyproject.toml has no line of the extra 'all'))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
# A cmake of the system comes first; the virtual environment gets its own where there is none.
CMAKE = $(shell command -v cmake || echo $(CURDIR)/$(BIN)/cmake)
CTEST = $(shell command -v ctest || echo $(CURDIR)/$(BIN)/ctest)
JOBS := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
C_FILES := $(shell find microbench -type f 2>/dev/null)

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## make the virtual environment, build the C part, install both

$(STAMP): pyproject.toml constraints.txt $(C_FILES)
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed; found \
	$$(python3 --version 2>&1 || true). Name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@command -v "$${CC:-cc}" >/dev/null || command -v gcc >/dev/null || { echo "make: a C compiler \
	is needed and there is none (cc, gcc). Install one, or name it with: make CC=..." >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { echo "make: this Python \
	cannot make virtual environments; install its venv module (Debian: python3-venv)." >&2; exit 1; }
	@echo "Setting up $(VENV) (the first time takes a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --upgrade pip || \
		echo "make: pip could not be upgraded; going on with the one that is there." >&2
	@tools="scikit-build-core"; command -v cmake >/dev/null || tools="$$tools cmake"; \
		command -v ninja >/dev/null || tools="$$tools ninja"; \
		$(BIN)/python -m pip install --quiet -c constraints.txt $$tools
	@$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@

develop: $(VENV)/.group-dev ## setup, and what tests, checks and benchmarks need besides

system: ## install what tests need besides Python: Slurm, Lua, a browser, PostgreSQL, Java, Prometheus (as root), PySpark, Grid Engine
	@$(PYTHON) tests/system.py

kubernetes: ## build a real kube-apiserver and kube-scheduler for benchmarks/extender/real_cluster.py (ten minutes, 3 GB)
	@$(PYTHON) benchmarks/extender/build_kubernetes.py

$(VENV)/.group-%: $(STAMP)
	@$(BIN)/python -m pip install --quiet -c constraints.txt --group $*
	@touch $@

wheel: $(VENV)/.group-packaging ## build the sdist and the wheels into dist/, check them, run one in a clean environment
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python .ci/wheels.py

site: $(VENV)/.group-site ## build the documentation into build/site; fails on a broken link or a page without place
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

proto: develop ## generate the messages and stubs of proto/ again (a test proves them in sync)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto --python_out=. \
		--grpc_python_out=. --mypy_out=quiet:. --mypy_grpc_out=quiet:. proto/kongming/rpc/v1/*.proto
	$(BIN)/python proto/comments.py

lint: develop build/c-debug/CMakeCache.txt ## ruff; clang-tidy for the C part where it is installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if command -v clang-tidy >/dev/null; then \
		echo "clang-tidy microbench"; \
		find microbench -name '*.c' -print0 | xargs -0 -n 4 -P $(JOBS) \
			clang-tidy --quiet -p build/c-debug --warnings-as-errors='*' \
			--extra-arg=-Wno-unknown-warning-option; \
	else echo "clang-tidy is not installed: left out"; fi

type: develop ## mypy, strict
	$(BIN)/mypy

imports: develop ## the layers of the design: who may import whom
	$(BIN)/lint-imports

# Three processes, since many tests wait; those that compare speeds have the CPUs to themselves
# (tests/turns.py). Which tests stay together, and in which order: tests/order.py.
TOGETHER := -n 3
test: develop ## the tests, but for the thorough ones
	$(BIN)/pytest $(TOGETHER)

# Commands and daemons are started cold as well: where they are forked, they cannot fail to import.
COLD := cli cli_node predict scale simulate service_contract server/test_main.py agent/test_agent.py \
	$(addprefix server/profiles/test_,service.py training.py) audit/test_observe.py
thorough: develop ## the tests that take long: more kinds and draws, a real Slurm, programs started cold
	$(BIN)/pytest $(TOGETHER) -m thorough
	HYPOTHESIS_PROFILE=many $(BIN)/pytest $(TOGETHER) -m "hypothesis and not thorough"
	KONGMING_TEST_COLD=1 $(BIN)/pytest $(TOGETHER) $(addprefix tests/,$(COLD))

build/c-debug/CMakeCache.txt: $(STAMP)
	@$(CMAKE) -S microbench -B build/c-debug -DCMAKE_BUILD_TYPE=Debug \
		-DMICROBENCH_WERROR=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
	@touch $@

test-c: build/c-debug/CMakeCache.txt ## build the C part for debugging and run its unit tests
	@$(CMAKE) --build build/c-debug --parallel $(JOBS)
	$(CTEST) --test-dir build/c-debug --output-on-failure --no-tests=error

sanitize: setup ## run every kernel under the address and undefined-behaviour sanitizers
	@$(CMAKE) -S microbench -B build/c-sanitize -DCMAKE_BUILD_TYPE=Debug \
		-DMICROBENCH_SANITIZE=ON >/dev/null
	@$(CMAKE) --build build/c-sanitize --parallel $(JOBS)
	$(CTEST) --test-dir build/c-sanitize --output-on-failure --no-tests=error

bench: develop ## the benchmarks of KONGMING itself, as JSON
	$(BIN)/python benchmarks/parity/parity.py
	$(BIN)/python benchmarks/overhead/overhead.py

demo: setup ## the main job on this machine: measure, profile, train, predict pairs, check
	$(BIN)/python examples/demo.py

cluster: setup ## the service on this machine: a server and three agents, ranked, placed on, watched
	$(BIN)/python examples/cluster.py

transcripts: develop ## write the transcripts in README and docs from real runs (ONLY=NAME for one)
	$(BIN)/python docs/transcripts.py $(ONLY)

pictures: develop ## draw the pictures of README and docs from recordings (ONLY=NAME for one)
	$(BIN)/python docs/pictures.py $(ONLY)

observe: setup ## record this machine for benchmarks/instances (10 minutes; goes on if interrupted)
	$(BIN)/python -m benchmarks.instances.observe

MINUTES ?= 10
fuzz: develop ## try damaged files, messages and requests on all that reads them (MINUTES=10)
	$(BIN)/python -m tests.fuzz $(MINUTES)

check: lint type imports test-c sanitize test thorough ## everything that a change must pass

lock: setup ## write constraints.txt and requirements.lock again, with the newest versions that fit
	@rm -rf build/lock && $(BIN)/python -m venv --upgrade-deps build/lock
	@build/lock/bin/pip install --quiet '.[all]' scikit-build-core cmake ninja \
		--group dev --group site --group packaging
	@sed '/^[^#]/,$$d' constraints.txt > build/constraints.txt
	@build/lock/bin/pip list --format=freeze \
		| grep -viE '^(kongming|pip|setuptools|wheel)=' >> build/constraints.txt
	@mv build/constraints.txt constraints.txt && rm -rf build/lock
	@$(MAKE) hashes

hashes: setup ## write requirements.lock again: the versions of constraints.txt with their hashes
	@mkdir -p build
	@$(BIN)/python -m pip install --quiet --dry-run --ignore-installed \
		--report build/report.json --requirement constraints.txt
	@$(BIN)/python .ci/lock.py build/report.json > build/requirements.lock
	@mv build/requirements.lock requirements.lock && rm build/report.json

clean: ## remove what was built, and the caches; the virtual environment stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .demo .cluster
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
