# Each target works on a fresh machine with Python, a C++20 compiler and the package index: it makes .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check
NATIVE := CMakeLists.txt $(shell find native -type f)
FORMATTED := $(shell find native -name '*.cpp' -o -name '*.h')
TEST_ARGS ?= -n auto

.PHONY: demo test lint format bench docs install clean

demo: .venv/installed
	NEURON_EAGER=adaptive $(BIN)/adaptive-eager run --report examples/train_gpt.py

test: .venv/installed
	ADAPTIVE_EAGER_CACHE_DIR=$(CURDIR)/.venv/cache $(BIN)/python -m pytest $(TEST_ARGS)

# All of docs/benchmarks.md, hours; BENCH_ARGS='models-1 --programs rk4' measures some.
bench: .venv/installed
	$(BIN)/python benchmarks/report.py $(BENCH_ARGS)

docs: .venv/installed
	$(BIN)/python docs/generate.py

lint: .venv/linters
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED)

format: .venv/linters
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(FORMATTED)

install: .venv/installed

# Built in .venv itself, not in an isolated environment, so that a second build compiles only what changed.
.venv/installed: .venv/build-requires $(NATIVE)
	$(PIP) install --no-build-isolation --config-settings=build-dir=build/dev -e '.[test]'
	@touch $@

.venv/build-requires: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install $$($(BIN)/python tools/build_requires.py)
	@touch $@

.venv/linters: .venv/installed
	$(PIP) install --no-build-isolation --config-settings=build-dir=build/dev -e '.[test,lint]'
	@touch $@

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .mypy_cache .benchmarks .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
