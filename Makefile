# Sets up .venv by itself; needs Python 3.11 or newer, make and a package index. Another Python: make PYTHON=python3.13 ...
#
#   make demo     the main job on sample traffic          make lint     ruff: lint and format
#   make test     all tests                               make types    mypy, strict
#   make wheels   every distribution, into dist/          make clean    remove what make made

SHELL := /bin/sh
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,\
	$(shell $p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $p)))
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check
PROJECTS := pyproject.toml core/pyproject.toml $(sort $(wildcard plugins/*/pyproject.toml))
FOLDERS := $(patsubst %/pyproject.toml,./%,$(filter-out pyproject.toml,$(PROJECTS)))
DEMO ?=
TESTS ?= tests

.PHONY: demo test lint types wheels clean setup setup-dev

demo: $(VENV)/installed
	$(VENV)/bin/flowshunt demo $(DEMO)

test: $(VENV)/installed-dev
	$(RUN) -m pytest $(TESTS)

lint: $(VENV)/installed-dev
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check

types: $(VENV)/installed-dev
	$(RUN) -m mypy $(addsuffix /src,$(FOLDERS))

wheels: $(VENV)/installed-dev
	rm -rf dist
	$(PIP) wheel -q --no-deps --no-build-isolation --no-index --wheel-dir dist . $(FOLDERS)

setup: $(VENV)/installed

setup-dev: $(VENV)/installed-dev

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "flowshunt needs Python 3.11 or newer: none found; name one with 'make PYTHON=/path/to/python3 ...'" >&2; exit 2; fi
	@"$(PYTHON)" -m venv --clear $(VENV) || { rm -rf $(VENV); \
		echo "'$(PYTHON) -m venv' failed: install the package that holds it (Debian, Ubuntu: python3-venv)," \
			"or name another Python with 'make PYTHON=/path/to/python3 ...'" >&2; exit 2; }

# The build backend is installed first, so that no project needs an environment of its own to be built in.
$(VENV)/installed: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) install -q 'hatchling>=1.24' 'editables>=0.5'
	$(PIP) install -q --no-build-isolation -e . $(addprefix -e ,$(FOLDERS))
	@touch $@

# Adds tools alone: what is installed may be in use by another target of the same make.
$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) install -q --no-build-isolation -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
