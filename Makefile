# The two commands: `make demo` and `make test`. Everything else is for those who work on hushgram.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TREE   := .build/tree
# All tests run in two processes; what ARGS names runs in one, which starts sooner.
PROCESSES = $(if $(ARGS),,-n 2 --dist worksteal)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all explore-noise test-flink coverage audit mutants fuzz neighbours neighbour-files lint tree docs bench wheel lock clean sketch-mutants

help:           ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## +/\t/' | expand -t 14

setup: $(STAMP) ## virtual environment with locked dependencies and hushgram itself

$(STAMP): requirements.lock pyproject.toml
	@echo "setting up $(VENV) with locked dependencies: once, a minute or two"
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hushgram needs Python 3.11 or later; run make with PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup     ## generate page views, release them privately, look keys up beside the truth
	@$(BIN)/hushgram demo

test: setup     ## the tests, in about five minutes (ARGS goes to pytest: ARGS=tests/core)
	PYTHONDONTWRITEBYTECODE= PYTHONHASHSEED=0 $(BIN)/python -m tests.leftovers $(PROCESSES) -m "not long" --ignore=tests/engines $(ARGS)

test-all: setup ## these and the long ones: searches, fuzzing, storms and kills; engines have a target of their own
	PYTHONDONTWRITEBYTECODE= PYTHONHASHSEED=0 $(BIN)/python -m tests.leftovers -n 2 --dist worksteal --ignore=tests/engines $(ARGS)

explore-noise: setup ## tests that hold for any noise, with fresh noise; and other examples of hypothesis
	$(BIN)/python -m tests.leftovers --fresh-noise -n 2 --dist worksteal $(ARGS)

test-flink: setup ## the release and the query stage on a real Flink cluster and on Prism
	HUSHGRAM_REQUIRE_ENGINES=1 $(BIN)/python -m tests.leftovers tests/engines $(ARGS)

coverage: setup ## branch coverage of the library (core/) by its own tests and the privacy tests, with a floor
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-config=pyproject.toml --cov-report=term tests/core tests/privacy $(ARGS)

audit: setup    ## worst loss of every mechanism by enumeration (docs/audit.md), and the release as a black box
	$(BIN)/python -m tests.privacy.audit
	$(BIN)/python -m tests.privacy.blackbox

mutants: setup  ## deliberate breaches, each of which a test must notice
	$(BIN)/python -m tests.mutants

fuzz: setup     ## a million tries at every door; ARGS="--seconds 600 config" narrows it
	$(BIN)/python -m tests.fuzz $(ARGS)

neighbours: setup ## 200,000 pairs of neighbouring data through generated jobs, for hours: exact values differ by what is stated (N=1000 for fewer)
	$(BIN)/python -m tests.neighbours --pairs $(or $(N),200000) $(ARGS)

neighbour-files: setup ## 10,000 generated files with and without one user: nobody else's records change (N=100000 for more)
	HUSHGRAM_NEIGHBOUR_FILES=$(or $(N),10000) $(BIN)/python -m pytest -n 2 tests/core/inputs/test_neighbours.py $(ARGS)

sketch-mutants: setup ## 20,000 altered sketches, each refused or answering as before (N=2000 for fewer)
	$(BIN)/python -m tests.core.sketch.mutants $(or $(N),20000)

# The three folders as one import root, as a tree of links: mypy and import-linter read this.
tree:
	@rm -rf $(TREE) && mkdir -p $(TREE)
	@cp -rs $(CURDIR)/core $(TREE)/hushgram
	@cp -rs $(CURDIR)/transforms $(TREE)/hushgram/transforms
	@cp -rs $(CURDIR)/pipelines $(TREE)/hushgram/pipelines

lint: setup tree ## ruff, mypy --strict, import contracts
	$(BIN)/ruff format --check --quiet core transforms pipelines tests benchmarks tools
	$(BIN)/ruff check core transforms pipelines tests benchmarks tools
	$(BIN)/mypy -p hushgram
	PYTHONPATH=$(TREE) $(BIN)/lint-imports

docs: setup tree ## the documentation as a site, in .build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: setup    ## every comparison with peers, about half an hour; writes docs/benchmarks.md and benchmarks/out
	$(BIN)/python -m benchmarks

wheel: setup    ## dist/hushgram-*.whl
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

lock:           ## resolve the dependencies anew
	$(BIN)/python -m piptools compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --allow-unsafe \
	  --extra dev --extra beam --extra pages --extra postgres --output-file requirements.lock pyproject.toml
	@sed -i "/^hushgram @ file/,+1d" requirements.lock # which the extras name
	$(BIN)/python -m piptools compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --allow-unsafe --no-annotate \
	  --no-header --constraint requirements.lock --extra beam --extra aws --extra postgres --output-file .build/runtime.lock pyproject.toml
	@echo "# Run-time dependencies of jobs, of a ledger on PostgreSQL and of s3://, at the versions of requirements.lock (make lock)" \
	  > requirements-runtime.lock
	@grep "^[A-Za-z0-9._-]*==" .build/runtime.lock >> requirements-runtime.lock

clean:
	rm -rf $(VENV) .build build dist *.egg-info
