"""Helpers of the Dags' tests: the Dags of a lake, what its tasks do first, and its landing."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.api.datamodels._generated import DagRun
from deltalake import DeltaTable

from include.fold.admission import EPOCH, MICROSECOND, micros_of
from include.ingest.ingest import heartbeat
from include.ingest.ingest_log import Ingestion
from include.ingest.watermark import SourceWatermark
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.registry import source_named, stream_named
from include.steps import Start
from include.stream.open_stream import open_stream
from include.stream.record import RecordEntry
from include.streams.user_counts import FOLD, UserEvent
from tests.bronze import append_commit, stamp
from tests.stream.entries import entry, record

DELAY_US = stream_named("user_counts").watermark_delay // timedelta(microseconds=1)
ROOT = Path(__file__).resolve().parents[1]
LATER = datetime(2026, 3, 1, 5, tzinfo=UTC)
PARAMS = {"rebuild": False, "downstream": False}
RUN_ID = "scheduled__2026-03-01T05:00:00+00:00"


def load_dags(lake: str, file: str = "dags/streams.py") -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKE", lake)
        bag = DagBag(ROOT / file)
    assert bag.import_errors == {}
    return bag.dags


def before(
    dags, task_id: str, run_type: str = "scheduled", interval_end: datetime | None = LATER
) -> None:
    """Do what comes before `task_id` of the Dag of user_counts starts its JVM."""
    task = dags["stream_user_counts"].get_task(task_id)
    context = {"dag_run": dag_run(run_type, interval_end), "params": PARAMS}
    task._pre_execute_hook(context)


def job_of(task, context: dict) -> Start:
    """Return the start of the task's job, with all of its arguments."""
    with task._starting(context) as start:
        return start._replace(arguments=[*task.arguments, *start.arguments])


def dag_run(
    run_type: str = "scheduled", interval_end: datetime | None = LATER, **others: object
) -> DagRun:
    """Return the run of the hour before `interval_end`, as a task sees it."""
    start = interval_end and interval_end - timedelta(hours=1)
    given = {"data_interval_start": start, "data_interval_end": interval_end, "logical_date": start}
    given |= {"run_id": RUN_ID, "run_type": run_type, "consumed_asset_events": []}
    return DagRun.model_construct(**given | others)


def raise_watermark(lake: Lake, instant: datetime) -> None:
    at_us = int(instant.timestamp() * 1_000_000)
    source, after = source_named("user_events"), SourceWatermark(at_us, at_us)
    row = heartbeat(source, SourceWatermark(), after)
    Ingestion(lake, source).commit_rows(SourceWatermark(), after, row)


def land(lake: Lake, *lines: str, file: str = "events.jsonl") -> None:
    folder = Path(lake.landing("user_events"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text("".join(f"{line}\n" for line in lines))


def settle(lake: Lake, until: datetime) -> None:
    """Leave user_counts as a rebuild does: complete until then, and no run since."""
    row = {"seed_savepoint": "s1", "until_us": micros_of(until), "source": "user_events"}
    made = entry(0, "rebuild", None, micros_of(until), generation=2, bronze_id=None)
    record(lake, made, row=row)


def bring_late_row(lake: Lake) -> None:
    """Bronze of user_counts with a row of each of two days, and a live run that had read them.

    The row of the day before LATER came after that of LATER, a day too late.
    """
    late = LATER - timedelta(days=1)
    events = [UserEvent("ann", (at - EPOCH) // MICROSECOND) for at in (LATER, late)]
    for rows in stamp([[event] for event in events]):
        append_commit(lake, "user_events", FOLD, rows)
    batch = {"stream": "user_counts", "generation": 1, "rows_late": 1}
    append_ops(lake, "batches", [batch | {"late_from": late, "late_to": late}])


def lived(lake: Lake) -> RecordEntry:
    """Return the entry of the record that live made before the late row came."""
    bring_late_row(lake)
    settle(lake, LATER)
    bronze_id = str(DeltaTable(lake.bronze("user_events")).metadata().id)
    until_us, code = micros_of(LATER), open_stream(lake, stream_named("user_counts")).identity.code
    made_of = {"bronze_id": bronze_id, "delay_us": DELAY_US, "generation": 2, "codes": (code,)}
    live = entry(0, "live", None, until_us, **made_of)
    record(lake, live)
    return live
