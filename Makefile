# What there is to do. No logic here: it is in include/ and tests/.
.DEFAULT_GOAL := help
SHELL := /bin/sh

# Where the lake lies (any make variable can be given as `make run LAKE=/data/lake`).
LAKE ?= $(CURDIR)/lake
# The port of Airflow's UI and API.
PORT ?= 8080
# Any value: `make run` ends after the first successful runs.
ONCE ?=
STREAM ?=
SOURCE ?=
# A file of corrected quarantine rows, for reingest.
CORRECTIONS ?=
# The interval of plan-backfill and recompute: dates or instants, UTC.
FROM ?=
UNTIL ?=
# What repair-clock sets a clock back to: an instant, UTC.
TO ?=
# Of reseed.
BUCKETS ?=
PARTITIONS ?=
RECOMPUTE ?=
FROM_STATE ?=
GIVE_UP ?=
# Of coverage.
REBUILD ?=
APPLY ?=
# Any value: `make inspect` prints JSON, and nothing else on stdout.
JSON ?=
# Of simulate: how many seeds, and the first one.
SEEDS ?= 10
FIRST ?= 1
# Options of sample-data, inspect and bench, as they stand in their --help.
ARGS ?=
# The interpreter to make .venv with; found on PATH when not given.
PYTHON ?=

VENV := .venv
RUN := $(VENV)/bin/python -m
export LAKE PORT PYTHON

.PHONY: help setup test-setup run stream tend inspect savepoint plan-backfill recompute reseed coverage repair-clock sample-data reingest maintain-tables demo-internals compose-env test test-fast test-full check simulate bench rehearse rehearse-short

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Check Python and Java, make .venv, install it, fetch the jars (each once)
	@include/setup/setup.sh

run: setup ## Start Airflow, run every stream, show the results, serve until Ctrl-C [LAKE= PORT= ONCE=1]
	@$(RUN) include.airflow.local_airflow $(if $(ONCE),--once)

stream: setup ## Ingest and drain one stream once, without Airflow [STREAM= LAKE=]
	@$(RUN) include.run_local stream --stream '$(STREAM)'

tend: setup ## Check the checkpoint of a stream, compact and tune its state [STREAM= LAKE= ARGS=--dry-run]
	@$(RUN) include.care.tend_state --stream '$(STREAM)' $(ARGS)

inspect: ## Show what the state of a stream holds [STREAM= LAKE= JSON=1]
	@include/setup/setup.sh >&2
	@$(RUN) include.run_local inspect --stream '$(STREAM)' $(if $(JSON),--json) $(ARGS)

savepoint: setup ## Write the state of a stream down as a savepoint [STREAM= LAKE=]
	@$(RUN) spark_jobs.state_admin savepoint --stream '$(STREAM)'

plan-backfill: setup ## Show what the runs of a backfill would do [STREAM= FROM= UNTIL= LAKE=]
	@$(RUN) spark_jobs.state_admin plan-backfill --stream '$(STREAM)' --from '$(FROM)' --until '$(UNTIL)'

recompute: setup ## Recompute an interval of a stream, late rows included [STREAM= FROM= UNTIL= LAKE=]
	@$(RUN) spark_jobs.state_admin recompute --stream '$(STREAM)' --from '$(FROM)' --until '$(UNTIL)'

reseed: setup ## Make state anew from bronze: the plan, or with APPLY=1 do it [STREAM= LAKE= BUCKETS= PARTITIONS= UNTIL= RECOMPUTE=1 FROM_STATE=1 GIVE_UP=1]
	@$(RUN) spark_jobs.state_admin reseed --stream '$(STREAM)' $(if $(BUCKETS),--buckets '$(BUCKETS)') \
		$(if $(PARTITIONS),--partitions '$(PARTITIONS)') $(if $(UNTIL),--until '$(UNTIL)') \
		$(if $(RECOMPUTE),--recompute) $(if $(FROM_STATE),--from-state) $(if $(APPLY),--apply) $(if $(GIVE_UP),--give-up)

coverage: setup ## Show where the table of a stream is right, and where not [STREAM= LAKE= REBUILD=1 APPLY=]
	@$(RUN) spark_jobs.state_admin coverage --stream '$(STREAM)' $(if $(REBUILD),--rebuild) $(if $(APPLY),--apply)

repair-clock: setup ## Set the clock of a source back, and reseed its streams: the plan, or with APPLY=1 do it [SOURCE= TO= LAKE=]
	@$(RUN) spark_jobs.state_admin repair-clock --source '$(SOURCE)' $(if $(TO),--to '$(TO)') $(if $(APPLY),--apply)

sample-data: setup ## Write sample input into the lake's landing folder [LAKE= ARGS=]
	@$(RUN) include.sample.sample_data --lake '$(LAKE)' $(ARGS)

reingest: setup ## Take corrected rows of the quarantine in again [SOURCE= CORRECTIONS= LAKE=]
	@$(RUN) include.run_local reingest --source '$(SOURCE)' $(if $(CORRECTIONS),--corrections '$(CORRECTIONS)')

maintain-tables: setup ## Optimize and vacuum what needs it, without Airflow [LAKE= ARGS=--dry-run]
	@$(RUN) include.care.run_maintenance --lake '$(LAKE)' $(ARGS)

demo-internals: setup ## Show plan, state, progress and logs of stateful operators (docs/internals.md)
	@$(RUN) include.sample.show_internals

compose-env: ## Write new random secrets for docker compose into .env
	@$(or $(PYTHON),$(wildcard $(VENV)/bin/python),python3) -m include.docker.compose_env

test-setup:
	@include/setup/setup.sh --tests

# Two processes, each with a Spark session of its own: a core is often left waiting by one.
test: test-setup ## Run the tests (40 minutes or so on 2 cores)
	@$(RUN) pytest -m "not full" -n 2 --dist loadfile

test-fast: test-setup ## Run the tests that need neither a JVM nor Airflow
	@$(RUN) pytest -m "not spark and not airflow and not full"

test-full: test-setup ## Run all tests, the long matrices too
	@$(RUN) pytest

check: test-setup ## Lint, formatting, types
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

simulate: test-setup ## Simulate sequences of operations without a JVM [SEEDS= FIRST= ARGS="--plant L1"]
	@$(RUN) tests.simulator.simulate --seeds '$(SEEDS)' --first '$(FIRST)' $(ARGS)

bench: test-setup ## Measure the engines side by side [ARGS=]
	@$(RUN) tests.benchmarks.bench $(ARGS)

rehearse: test-setup ## Run docker-compose.yaml without containers, break it, compare the tables [ARGS=]
	@$(RUN) tests.rehearsal.rehearse $(ARGS)

rehearse-short: test-setup ## The same in a few minutes: two streams, fewer steps [ARGS=]
	@$(RUN) tests.rehearsal.rehearse --short $(ARGS)
