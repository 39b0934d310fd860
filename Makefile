# What developers do, and `make run`. All else is in `./stateful --help`. No logic here.
.DEFAULT_GOAL := help
SHELL := /bin/sh

# Where the lake lies (any make variable can be given as `make run LAKE=/data/lake`).
LAKE ?= $(CURDIR)/lake
# The port of Airflow's UI and API.
PORT ?= 8080
# Any value: `make run` ends after the first successful runs.
ONCE ?=
# Of simulate and chaos: how many seeds, and the first one; of chaos: how many actions of each.
SEEDS ?= 10
FIRST ?= 1
STEPS ?= 20
# Of test-e2e: which third of the tests that take turns, by the number of commits; empty: all of them.
TURN ?= $(shell git rev-list --count HEAD 2>/dev/null)
# Options of simulate, bench and faults, as they stand in their --help.
ARGS ?=
# The interpreter to make .venv with; found on PATH when not given.
PYTHON ?=

VENV := .venv
RUN := $(VENV)/bin/python -m
export LAKE PORT PYTHON

.PHONY: help sizes test-setup run compose-env test test-fast test-e2e test-s3 test-ui test-full check simulate chaos bench faults

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Start Airflow, run every stream, show the results, serve until Ctrl-C [LAKE= PORT= STREAMS= ONCE=1]
	@./stateful run $(if $(ONCE),--once)

compose-env: ## Write new random secrets for docker compose into .env
	@$(or $(PYTHON),$(wildcard $(VENV)/bin/python),python3) -m include.docker.compose_env

test-setup:
	@include/setup/setup.sh --tests

# Two processes, each with a Spark session of its own: a core is often left waiting by one. Who
# has nothing left to do takes half of what the other one still has; where tests share what takes
# minutes to make, they are marked as a group (xdist_group), and stay together.
TESTS := $(RUN) pytest -n 2 --durations=25 --dist worksteal
GROUPS := $(RUN) pytest -n 2 --durations=25 --dist loadgroup

test: test-setup ## Run the tests (9 minutes on 2 cores, and those of set-up)
	@$(TESTS) -m "not full and not e2e"

test-fast: test-setup ## Run those of a few hundredths of a second, with few examples (under a minute)
	@$(TESTS) -m "not spark and not airflow and not slow and not full and not e2e" --ignore=tests/simulator --ignore=tests/airflow --hypothesis-profile=few

test-e2e: test-setup ## Fresh clones, Airflow with JVMs, kills, clusters, what compose starts [TURN=]
	@$(GROUPS) -m "e2e and not full" $(if $(TURN),--turn '$(TURN)')

test-s3: test-setup ## Of these, the lake on S3: a store on this machine, two writers, leases that expire
	@$(RUN) pytest --durations=10 tests/e2e/test_s3.py tests/e2e/test_s3_jobs.py tests/e2e/test_s3_airflow.py

test-ui: test-setup ## Of these, our pages by axe-core, and in a running Airflow, by a headless Chromium
	@$(RUN) pytest --durations=10 tests/e2e/test_accessible_pages.py tests/e2e/test_state_page_in_chromium.py

test-full: test-setup ## Run all tests, the long matrices too, with all examples (hours)
	@$(GROUPS) --hypothesis-profile=all

check: test-setup ## Lint, formatting, types
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

sizes: test-setup ## Lines of each room, what one ingest, drain, check and rebuild enter [ARGS=--lower]
	@$(RUN) tests.sizes $(ARGS)

simulate: test-setup ## Simulate sequences of operations without a JVM [SEEDS= FIRST=]
	@$(RUN) tests.simulator.simulate --seeds '$(SEEDS)' --first '$(FIRST)' $(ARGS)

bench: test-setup ## Measure the engines side by side [ARGS=]
	@include/setup/setup.sh
	@$(RUN) tests.benchmarks.bench $(ARGS)

chaos: test-setup ## Sequences of operations on real Spark, with real kills [SEEDS= FIRST= STEPS=]
	@$(RUN) tests.chaos --seeds '$(SEEDS)' --first '$(FIRST)' --steps '$(STEPS)'

faults: test-setup ## Try all faults that we can think of: kills, losses, damage, cuts of a real Kafka [ARGS=]
	@$(RUN) tests.faults $(ARGS)
