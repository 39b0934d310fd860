"""A backfill of many hourly intervals, in an Airflow that runs: how many JVMs, and what an interval takes.

    .venv/bin/python -m tests.benchmarks.long_backfill --hours 720 --out .bench/long_backfill

A copy of the project with that stream alone, an Airflow of its own, and a new lake: so many hours of
sample input, late rows among them, which the stream's first run drains. Then a backfill of all, as the
stream's page asks for it.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from include.airflow.api import AirflowApi
from include.airflow.environment import any_free_port
from include.airflow.first_runs import FirstRuns
from include.airflow.local_airflow import airflow, only_one_here, stop_signals_raised
from include.airflow.parts import Parts, start_background
from include.airflow.progress import shown_progress
from include.lake.ops import read_ops
from include.lake.paths import Lake, made_lake
from include.landing.ingest import ingest
from include.page.backfill_form import backfill_request
from include.plans.plan_backfill import BackfillPlan, plan_backfill
from include.plans.plan_recompute import settled_until
from include.plans.stream_identity import stream_identity
from include.registry import source_named, stream_named
from include.sample.sample_data import Options, land_samples, last_full_day
from include.settings import PROJECT, Stream
from include.spark.local_jobs import say
from tests.e2e.one_stream import project_of_one_stream

STREAM = stream_named("device_signals")
DAG_ID = f"stream_{STREAM.name}"
EVENTS_AN_HOUR = 200
COMMIT_BYTES = 50_000
BETWEEN_LOOKS_S = 5.0
HOUR = timedelta(hours=1)


def land(lake: Lake, hours: int) -> None:
    """So many hours and a day more, so that all is settled; ingested in commits of a few hours each,
    as late rows are late for what was ingested before them."""
    source, span = source_named(STREAM.source), timedelta(hours=hours + 24)
    options = Options(
        start=last_full_day(datetime.now(UTC)) - span + timedelta(days=1),
        span_hours=span / HOUR,
        events=int(EVENTS_AN_HOUR * (span / HOUR)),
        late_share=0.02,
    )
    for line in land_samples(lake, [source], options):
        say(line)
    ingest(lake, replace(source, commit_bytes=COMMIT_BYTES))


def run_once(parts: Parts, api: AirflowApi) -> None:
    """The first run of the stream's Dag, which drains all."""
    with shown_progress(Console(), say) as shown:
        runs = FirstRuns(api, datetime.now(UTC), shown, parts.check_alive)
        run = runs.start(DAG_ID)
        assert run is not None
        failures = runs.wait([run])
    assert failures == [], failures


def planned(lake: Lake, stream: Stream, hours: int) -> BackfillPlan:
    """Of the last `hours` that live has settled."""
    settled = settled_until(lake, stream.name)
    assert settled is not None
    until = settled.replace(minute=0, second=0, microsecond=0)
    identity = stream_identity(lake, stream)
    return plan_backfill(lake, stream, identity, until - hours * HOUR, until)


def made(api: AirflowApi, look: Callable[[], None], plan: BackfillPlan) -> float:
    """Seconds from the request until Airflow says that all its runs have ended."""
    began = time.monotonic()
    number = api._call("POST", "/api/v2/backfills", dict(backfill_request(DAG_ID, plan)))["id"]
    while not api.get(f"backfills/{number}")["completed_at"]:
        look()
        time.sleep(BETWEEN_LOOKS_S)
    return time.monotonic() - began


def figures(lake: Lake, plan: BackfillPlan, seconds: float) -> dict[str, Any]:
    """What `ops` has of it: a run that started no JVM of its own has no time of that."""
    runs = read_ops(lake, "runs", {"job": "recompute_interval", "outcome": "succeeded"}).to_pylist()
    rows = read_ops(lake, "intervals", {"stream": STREAM.name}).to_pylist()
    started = [run["jvm_start_seconds"] for run in runs if run["jvm_start_seconds"] is not None]
    return {
        "dag_runs": len(plan.runs),
        "recomputed": len({(row["start"], row["until"]) for row in rows}),
        "jvms": len(started),
        "jvm_start_s": statistics.median(started),
        "interval_s": statistics.median(row["seconds"] for row in rows),
        "rows_changed": sum(row["rows_added"] + row["rows_removed"] for row in rows),
        "recomputes_s": sum(row["seconds"] for row in rows),
        "all_s": seconds,
    }


def summary(found: dict[str, Any]) -> Iterator[str]:
    yield "| figure | |\n|---|---|"
    for name, value in found.items():
        yield f"| {name} | {value:,.4g} |"


def measure(out: Path, hours: int) -> None:
    """In the copy: all that is imported of `include` is of it."""
    lake = made_lake(str(out / "lake"))
    land(lake, hours)
    with stop_signals_raised(), only_one_here(), airflow(lake, any_free_port()) as (parts, api):
        start_background(parts, api)
        run_once(parts, api)
        plan = planned(lake, STREAM, hours)
        found = figures(lake, plan, made(api, parts.check_alive, plan))
    (out / "figures.json").write_text(json.dumps(found))
    say("\n".join(summary(found)))


def in_copy(out: Path, hours: int) -> int:
    """The same command in a copy, whose Airflow knows nothing of any other lake; its exit code."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    project = project_of_one_stream(out, STREAM.name)
    words = ["--hours", str(hours), "--out", str(out), "--in-copy"]
    return subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.long_backfill", *words],
        cwd=project,
        env=os.environ | {"PYTHONPATH": f"{project}{os.pathsep}{PROJECT}"},
        check=False,
    ).returncode


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=int, default=720)
    parser.add_argument("--out", type=Path, default=Path(".bench/long_backfill"))
    parser.add_argument("--in-copy", action="store_true", help="as this calls itself")
    args = parser.parse_args()
    out = args.out.absolute()
    if not args.in_copy:
        sys.exit(in_copy(out, args.hours))
    measure(out, args.hours)


if __name__ == "__main__":
    main()
