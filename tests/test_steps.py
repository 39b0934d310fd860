"""A person's steps are those of the Dag: what is left out, what comes after what failed, and the order."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from dags.streams import trigger_rule
from include import run_local
from include.lake.ops import read_ops
from include.registry import stream_named
from include.steps import INGEST_HERE, STEPS, Report, Start, Step, StreamRun
from tests.dags import land

STREAM = stream_named("user_counts")
LIVE = [step for step in STEPS if step.group != "backfill"]
RIGHT, LEFT_OUT, FAILING = "success", "skipped", "failed"


def as_airflow(would: Mapping[str, str]) -> dict[str, str]:
    """The states of a live run's tasks under their trigger rules, each being as it would."""
    states: dict[str, str] = {}
    for step in STEPS:
        earlier = [states[name] for name in (*step.after, *step.behind)]
        if {"failed", "upstream_failed"} & set(earlier):
            states[step.name] = "upstream_failed"
        elif is_skipped(step, earlier) or step.group == "backfill":
            states[step.name] = LEFT_OUT
        else:
            states[step.name] = would[step.name]
    return states


def is_skipped(step: Step, earlier: list[str]) -> bool:
    rule = trigger_rule(step)
    if rule == "all_success":
        return LEFT_OUT in earlier
    return rule == "none_failed_min_one_success" and RIGHT not in earlier


def planted(step: Step, would: str, taken: list[str]) -> Step:
    """`step`, which is left out, succeeds or fails as asked for, and says that it was taken."""

    def why_not(run: StreamRun) -> str | None:
        return "not this time" if would == LEFT_OUT else None

    def look(run: StreamRun) -> Report:
        taken.append(step.name)
        return Report("looked", "a person is needed" if would == FAILING else None)

    if step.look is None:
        return replace(step, why_not=why_not, start=lambda run: nullcontext(Start()))
    return replace(step, why_not=why_not, look=look)


def taken_by_hand(lake, would: Mapping[str, str]) -> tuple[list[str], int]:
    """Which steps are taken when each is as it would be, and the exit code."""
    taken: list[str] = []
    names = {step.job: step.name for step in STEPS}

    def run_job(job: str, *_: object) -> int:
        taken.append(names[job])
        return 3 if would[names[job]] == FAILING else 0

    steps = [planted(step, would.get(step.name, RIGHT), taken) for step in STEPS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_local, "STEPS", steps)
        patch.setattr(run_local, "run_job", run_job)
        return taken, run_local.take_steps(StreamRun(lake, STREAM))


def test_by_hand_the_same_steps_are_taken_as_by_a_schedule(lake):
    for outcomes in product((RIGHT, LEFT_OUT, FAILING), repeat=len(LIVE)):
        would = dict(zip((step.name for step in LIVE), outcomes, strict=True))
        states = as_airflow(would)
        taken, code = taken_by_hand(lake, would)
        assert taken == [name for name, state in states.items() if state in (RIGHT, FAILING)], would
        assert (code != 0) == (FAILING in states.values()), would


def test_little_is_ingested_by_hand_without_a_jvm(lake, monkeypatch):
    jobs: list[str] = []
    monkeypatch.setattr(run_local, "run_job", lambda job, *_: jobs.append(job) or 1)
    land(lake, "{")
    assert run_local.take_steps(StreamRun(lake, STREAM)) == 0  # no event: the stream waits
    (run,) = read_ops(lake, "runs").to_pylist()
    assert (run["job"], run["outcome"], run["rows_quarantined"]) == (
        "ingest_source",
        "succeeded",
        1,
    )
    assert jobs == []


def test_an_ingestion_without_a_jvm_that_fails_ends_it(lake, monkeypatch, capfd):
    monkeypatch.setattr(run_local, "run_job", lambda *_: pytest.fail("went on"))
    land(lake, "{")
    Path(lake.ingest_log(STREAM.source), "_delta_log").mkdir(parents=True)
    here = Start(command=[sys.executable, "-m", INGEST_HERE])
    steps = [
        replace(step, why_not=lambda run: None, start=lambda run: nullcontext(here))
        for step in STEPS[:1]
    ]
    monkeypatch.setattr(run_local, "STEPS", steps)
    assert run_local.take_steps(StreamRun(lake, STREAM)) == 2
    assert "(of_other_times)" in capfd.readouterr().err


def test_care_is_the_steps_after_a_run(lake, monkeypatch):
    taken: list[str] = []
    steps = [planted(step, RIGHT, taken) for step in STEPS]
    monkeypatch.setattr(run_local, "STEPS", steps)
    monkeypatch.setattr(run_local, "run_job", lambda job, *_: taken.append(job) or 0)
    assert run_local.maintain(lake, STREAM) == 0
    assert taken == ["check_checkpoint", "compact_state", "tune_rocksdb"]


def test_a_dry_care_starts_no_job_and_records_nothing(lake, monkeypatch):
    monkeypatch.setattr(run_local, "run_job", lambda *_: pytest.fail("started a JVM"))
    assert run_local.maintain(lake, STREAM, dry_run=True, compact_now=True) == 0
    assert not lake.is_delta_table(lake.ops("figures"))
