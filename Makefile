# `make help` lists the targets. Every target that needs the environment makes it first.
.DEFAULT_GOAL := help
.PHONY: help setup lock check fix test demo chaos campaign clean
SHELL := /bin/sh
BIN := .venv/bin
CODE := schemas services domains tests
# Extra arguments, e.g. make test PYTEST="-k stack -x", make demo RUN="--seed 2", make chaos CHAOS="--only broker-killed"
PYTEST ?=
CHAOS ?=
RUN ?=
LOCK ?=

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' Makefile | expand -t 10

setup:  ## make or refresh .venv, the broker's jars and the jail's init
	@deploy/setup.sh

lock:  ## recompile requirements/*.txt
	@deploy/lock.sh $(LOCK)

check: setup  ## formatter, linter, types, import rules
	$(BIN)/ruff format --check --quiet $(CODE)
	$(BIN)/ruff check --quiet $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

fix: setup  ## let the formatter and the linter repair what they can
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

# Two at a time, a file each: most tests wait for processes that they start.
test: setup check  ## everything that this machine can run
	$(BIN)/pytest -n 2 --dist loadfile $(PYTEST)

demo: setup  ## one training run on the embedded stack, with a report
	$(BIN)/temper run @presets/demo.toml $(RUN)

chaos: setup  ## the long form of the chaos suite: every scenario over 20 seeds, an hour of idling, a report
	$(BIN)/python -m tests.chaos.suite --report chaos-report.html $(CHAOS)

campaign: setup  ## the long form of the verifier's campaign: a thousand answers under fire, five hundred judged twice
	TEMPER_CAMPAIGN=long $(BIN)/pytest tests/chaos/test_verifier_campaign.py $(PYTEST)

clean:  ## remove what setup and the tests made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache services/verifier/jail/build temper.egg-info
	find schemas services domains tests -name __pycache__ -type d -prune -exec rm -rf {} +
