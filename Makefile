# The two commands that do everything on a fresh machine are `make demo` and `make test`.
# Each sets up .venv first; that takes a minute once, and nothing afterwards.

# The first Python on PATH that is new enough, by its full path: recipes see .venv/bin first.
PYTHON := $(or $(PYTHON),$(shell \
	for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
		if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			command -v "$$name"; break; \
		fi; \
	done))
READY := .venv/ready
SWEEP ?= a

export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint types contracts laws docs bench bench-sweep soak clean-venv

help:
	@echo 'make demo               run the sweep of examples/ (CHECK=1: compare with each job alone)'
	@echo 'make test               run the suite'
	@echo 'make setup              only set up .venv; PYTHON=/path/to/python chooses another Python'
	@echo 'make check              lint, types, contracts and docs; each is a target of its own'
	@echo 'make laws               run the laws alone (hypothesis)'
	@echo 'make bench              run every bench'
	@echo 'make bench-sweep        run one sweep of the bench: SWEEP=a (the first) to f'
	@echo 'make soak               inject every fault many times (COUNT=3: three of each)'
	@echo 'make clean-venv         remove .venv'

setup: $(READY)

$(READY): pyproject.toml constraints.txt tools/set_up.py
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Headway needs Python 3.11 or later; $(or $(PYTHON),what PATH has) is none." >&2; \
		echo 'Install one, or name it: make PYTHON=/path/to/python3.11 setup' >&2; \
		exit 1; \
	}
	@'$(PYTHON)' tools/set_up.py
	@touch $@

# The check runs the sweep side by side and then each job alone: about five minutes.
demo: $(READY)
ifneq ($(filter-out 0,$(CHECK)),)
	@python examples/check_demo.py
else
	@headway run examples/sweep.txt
endif

test: $(READY)
	pytest -q

check: lint types contracts docs

lint: $(READY)
	ruff check .
	ruff format --check .

types: $(READY)
	mypy

contracts: $(READY)
	lint-imports

laws: $(READY)
	pytest -q tests/laws

# The examples in the pages are run, and their links followed.
docs: $(READY)
	python tools/check_docs.py

bench: $(READY)
	@for bench in agent.py bits.py footprint.py simulator.py starts.py report_page.py \
		exhaustive.py gpu_sharing.py planning.py guided_packing.py common_window.py predictions.py \
		$(foreach sweep,a b c d e f,"sweep.py --sweep $(sweep)"); do \
		echo "$$bench"; python bench/$$bench || exit 1; \
	done

bench-sweep: $(READY)
	python bench/sweep.py --sweep $(SWEEP)

soak: $(READY)
	python bench/soak.py $(if $(COUNT),--count $(COUNT))

clean-venv:
	rm -rf .venv
