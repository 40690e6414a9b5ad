# Two commands set everything up on a fresh Debian machine: `make compare` and `make test`.
# Once before: apt-get install -y git make g++ python3-venv python3-dev

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
APT    := apt-get install -y git make g++ python3-venv python3-dev
NATIVE := $(shell find kernels CMakeLists.txt pyproject.toml -type f -not -path '*/hip/*' -not -path '*/cuda/*' 2>/dev/null)
THREADS ?= 2

.DEFAULT_GOAL := help
.PHONY: help prerequisites install compare test lint bench golden-check clean

help:
	@echo "once before:   $(APT)"
	@echo "make compare   install into .venv, build, run the main command on the embedded model"
	@echo "make test      the same set-up, then ruff, import-linter and pytest"
	@echo "make bench     kernels and prefill beside ggml (installs libggml-python)"
	@echo "make kernels-hip    code objects for gfx1100 and gfx1151 (needs clang-19), into build/gpu"
	@echo "make kernels-cuda   a cubin for sm_90 (needs cuda-bindings and nvidia-cuda-nvrtc in .venv)"
	@echo "make golden-check  repeat the accepted runs in golden/ and hold every bit against them"
	@echo "make clean     remove .venv and build/"

# Says what is missing before anything is downloaded, and the one line that mends it.
prerequisites:
	@miss=; for t in git g++ $(PYTHON); do command -v $$t >/dev/null 2>&1 || miss="$$miss $$t"; done; \
	if command -v $(PYTHON) >/dev/null 2>&1; then \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || miss="$$miss python>=3.11"; \
	  $(PYTHON) -c 'import venv, ensurepip' >/dev/null 2>&1 || miss="$$miss python3-venv"; \
	  $(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || miss="$$miss python3-dev"; \
	fi; \
	if [ -n "$$miss" ]; then echo "missing:$$miss"; echo "  $(APT)"; exit 2; fi

$(BIN)/python: | prerequisites
	@$(PYTHON) -m venv $(VENV)

# Editable: Python files are used from the tree, the native modules are rebuilt when a kernel source changes.
$(VENV)/.installed: $(NATIVE) | $(BIN)/python
	@echo "installing into $(VENV) and building the kernels (about two minutes)" >&2
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

install: prerequisites $(VENV)/.installed

compare: install
	@$(BIN)/edge0verify compare --stage D --a mmq --b w11

lint: install
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports pyproject.toml

# Repeats every golden on its committed inputs: no bit of any stage may have changed.
golden-check: install
	@$(BIN)/edge0verify golden check --threads $(THREADS)

test: install lint golden-check
	@$(BIN)/python -m pytest -n $(THREADS) --dist loadfile

bench: install
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[bench]'
	@$(BIN)/edge0verify bench kernels
	@$(BIN)/python benchmarks/bench_prefill.py

-include kernels/gpu.mk   # kernels-hip, kernels-cuda

clean:
	rm -rf $(VENV) build
