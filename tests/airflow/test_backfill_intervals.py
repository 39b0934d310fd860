"""A backfill run restates the interval that was planned, whatever data interval Airflow has.

*All Runs* makes a backfill of the run that has the logical date, and leaves its data interval as it is.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowFailException

from include.fold.admission import parse_instant
from include.stream import restate_plan
from include.stream.restate_plan import next_tick
from include.streams import user_counts
from spark_jobs.restate_interval import parse_args
from tests.dags import PARAMS, dag_run, job_of, load_dags, settle

HOUR = timedelta(hours=1)
DAY = datetime(2026, 3, 1, tzinfo=UTC)
RETAINED = {
    "as planned": ("0 * * * *", DAY, DAY + HOUR),
    "of the hours before the schedule became daily": ("0 0 * * *", DAY, DAY + HOUR),
    "of the days before the schedule became hourly": ("0 * * * *", DAY, DAY + 24 * HOUR),
    "of a run by hand, with the hour before": ("0 * * * *", DAY - HOUR, DAY),
}


@pytest.mark.parametrize("retained", RETAINED)
def test_it_restates_from_its_logical_date_to_the_next_tick(retained, lake, monkeypatch):
    schedule, start, end = RETAINED[retained]
    monkeypatch.setattr(user_counts, "STREAM", replace(user_counts.STREAM, schedule=schedule))
    until = next_tick(schedule, DAY)
    task = load_dags(lake.root)["stream_user_counts"].get_task("restate_interval")
    interval = {"logical_date": DAY, "data_interval_start": start, "data_interval_end": end}
    context = {"dag_run": dag_run("backfill", **interval), "params": PARAMS}
    context |= {"ti": Mock(get_dr_count=lambda **_: 0, get_ti_count=lambda **_: 0), "dag": task.dag}
    monkeypatch.setattr(restate_plan, "has_nothing_to_change", lambda *_, **__: False)
    # What is looked at before the job starts,
    settle(lake, until - timedelta(microseconds=1))
    with pytest.raises(AirflowFailException):
        task._pre_execute_hook(context)
    settle(lake, until)
    task._pre_execute_hook(context)
    # and what the job gets.
    args = parse_args(job_of(task, context).arguments)
    given = parse_instant("--from", args.start), parse_instant("--until", args.until)
    assert given == (DAY, until)
