# make reproduce: set up, then run the quick study.   make help lists the rest.
# Nothing here needs root. Everything is installed into .venv, with the exact versions of constraints.txt.
PYTHON ?= python3
CORES ?= all
EXPERIMENT ?= default
OVERRIDES ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
CORE := CMakeLists.txt $(shell find src/core -type f)
# Where the engine's experts are resident: cpu, or cuda (needs NVIDIA's compiler; docs/engine.md).
BACKEND ?= cpu
LLAMA_CMAKE_cpu :=
LLAMA_CMAKE_cuda := -DGGML_CUDA=ON
# Of llama.cpp: RPC devices for the engine's tests; nothing that the engine does not link.
LLAMA_CMAKE ?= -DGGML_RPC=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
# --config takes every word up to the next option, so a target behind it needs --cores in between.
SNAKEMAKE := $(BIN)/snakemake --config experiment=$(EXPERIMENT) $(if $(OVERRIDES),'overrides=[$(OVERRIDES)]') --cores $(CORES)

.DELETE_ON_ERROR:
.PHONY: help setup setup-dev setup-engine reproduce figures report card ui test test-all asan lint format config-docs clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.setup: pyproject.toml constraints.txt $(CORE)
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else f"error: $(PYTHON) is Python {sys.version.split()[0]}; 3.11 to 3.13 is needed (make PYTHON=python3.11 ...)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (first time: about 1 GB of downloads, some minutes)"
	$(PIP) scikit-build-core nanobind cmake ninja setuptools wheel
	$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.setup-dev: $(VENV)/.setup
	$(PIP) --no-build-isolation --editable ".[dev]"
	@touch $@

# pip would take a llama.cpp that is installed, or that it keeps as a wheel, for the one of another backend.
$(VENV)/.llama-$(BACKEND): pyproject.toml constraints.txt | $(VENV)/.setup
	@test -n "$(filter cpu cuda,$(BACKEND))" || { echo "error: BACKEND=$(BACKEND): no such backend; cpu or cuda"; exit 1; }
	@echo "building llama.cpp for $(BACKEND) (first time: 4 to 15 minutes on 2 cores, longer for cuda)"
	CMAKE_ARGS="$(LLAMA_CMAKE) $(LLAMA_CMAKE_$(BACKEND))" $(PIP) --no-build-isolation \
		$(if $(filter-out %/.llama-cpu,$(wildcard $(VENV)/.llama-*) $@),--no-cache-dir --force-reinstall --no-deps) llama-cpp-python
	@rm -f $(VENV)/.llama-*
	@touch $@

$(VENV)/.setup-engine: $(VENV)/.setup $(VENV)/.llama-$(BACKEND) $(shell find src/engine -type f)
	$(PIP) --no-build-isolation --editable ".[engine]"
	$(BIN)/expertmiss engine build --backend $(BACKEND)
	@touch $@

setup: $(VENV)/.setup ## virtual environment with pinned packages, compiled core
setup-dev: $(VENV)/.setup-dev ## the same with the tools for tests

setup-engine: $(VENV)/.setup-engine ## llama.cpp and the engine on it (BACKEND=cuda: docs/engine.md)

reproduce: setup ## the quick study: results/default and reports/default (EXPERIMENT=..., OVERRIDES='"policy=rule_015"')
	$(SNAKEMAKE)

figures: setup ## only the figures
	$(SNAKEMAKE) figures

report: setup ## only the report
	$(SNAKEMAKE) report

card: setup ## describe the built-in model anew: models/builtin/README.md
	$(SNAKEMAKE) card
	cp results/$(EXPERIMENT)/describe_model/builtin/builtin/README.md models/builtin/README.md

ui: setup ## browse the results in MLflow
	$(BIN)/expertmiss ui

test: setup-dev setup-engine ## tests that need only what pip installs
	EXPERTMISS_REQUIRE_ENGINE=1 $(BIN)/python -m pytest -m "not system" --numprocesses 2 --dist loadgroup

test-all: setup-dev setup-engine lint asan ## every test: adds Debian packages' tests, sanitizers and linters
	EXPERTMISS_REQUIRE_ENGINE=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

asan: setup-dev ## the core's tests under ASan and UBSan
	PYTHON=$(BIN)/python bash tests/core/run_sanitized.sh

lint: setup-dev ## ruff, mypy, snakefmt, clang-format, codespell, snakemake --lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'src/*.cpp' 'src/*.hpp')
	$(BIN)/codespell README.md CONTRIBUTING.md docs src tests config workflow
	$(BIN)/snakemake --lint

format: setup-dev ## rewrite the sources in house style
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .
	$(BIN)/snakefmt Snakefile workflow
	$(BIN)/clang-format -i $$(git ls-files 'src/*.cpp' 'src/*.hpp')

config-docs: setup ## regenerate config/README.md and config/schema.json
	$(BIN)/expertmiss config-docs

clean: ## remove results and reports (not the virtual environment)
	find results reports -mindepth 1 -not -name .gitkeep -not -path 'reports/study*' -delete
