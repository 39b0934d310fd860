"""Alerts go out: to Airflow's notifiers of `include/streams/notify.py`, and when a deadline is missed.

Airflow imports this at each parse of the Dags: what reads a lake is imported by the functions.
"""

import copy
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowTaskTimeout

from include.lake.errors import SettingsError
from include.registry import stream_named, stream_names
from include.settings import Stream, default_lake

if TYPE_CHECKING:
    from include.lake.paths import Lake
    from include.observe.alerts import Alert

log = logging.getLogger(__name__)

NOTIFY_MODULE, NOTIFY_FILE = "include.streams.notify", "include/streams/notify.py"
# Of a deadline and a task at once, one tells.
PATIENCE = timedelta(minutes=5)
# Of each notifier. The task has the pool of its stream meanwhile, and its Dag run the next one's place.
ANSWERS_WITHIN = timedelta(minutes=1)


def notifiers() -> dict[str, Callable[[Any], None]]:
    """Those of `include/streams/notify.py`, by place and kind; SettingsError when that file is wrong."""
    try:
        declared = tuple(importlib.import_module(NOTIFY_MODULE).NOTIFY)
    # Whatever the user's file raises, or has in place of a tuple: it is that file which is wrong.
    except Exception as error:
        raise SettingsError(
            f"{NOTIFY_FILE}: {type(error).__name__}: {error}: give NOTIFY = (..., ), the comma too "
            "where there is one",
            subject=NOTIFY_FILE,
        ) from error
    kinds = (getattr(each, "__qualname__", type(each).__name__) for each in declared)
    return {
        f"{n} {kind}": each for n, (kind, each) in enumerate(zip(kinds, declared, strict=True), 1)
    }


def send(lake: "Lake", by: str, context: Mapping[str, Any]) -> "Alert | None":
    """Tell all notifiers what `by` has recorded and not told; None when that is nothing.

    One that fails, or does not answer, raises when the others have been told; the next call tells
    only it.
    """
    from include.lake.lease import hold_lease
    from include.observe.alerts import Alert, mark_heard, mark_told, untold

    with hold_lease(lake, f"alerts-{by}", PATIENCE):
        rows = untold(lake, by)
        if not rows:
            return None
        failures: list[Exception] = []
        for name, notifier in notifiers().items():
            new = [row for row in rows if name not in row["heard_by"]]
            if not new:
                continue
            try:
                _notify(notifier, Alert(by, tuple(new)), context)
            except Exception as error:  # noqa: BLE001 (whatever theirs raises: the others come first)
                failures.append(error)
            else:
                mark_heard(lake, new, name)
        if failures:
            raise ExceptionGroup(f"{len(failures)} of NOTIFY ({NOTIFY_FILE}) failed", failures)
        mark_told(lake, rows)
        return Alert(by, tuple(rows))


def _notify(notifier: Callable[[Any], None], alert: "Alert", context: Mapping[str, Any]) -> None:
    """TimeoutError when it has not answered ANSWERS_WITHIN that; or whatever it raises."""
    from airflow.sdk.execution_time.timeout import timeout

    try:
        # The alarm of the task's own timeout ends with it: what is left to do waits for nobody.
        with timeout(ANSWERS_WITHIN.total_seconds()):  # type: ignore[no-untyped-call]
            # A copy: a notifier renders its templates into itself, and would say the first alert for ever.
            copy.deepcopy(notifier)({**context, "alert": alert})
    except AirflowTaskTimeout as error:  # no Exception: who sends would take it for an end
        name = type(notifier).__name__
        raise TimeoutError(f"{name} has not answered within {ANSWERS_WITHIN}") from error


def look(
    lake: "Lake", stream: Stream, dag_run_id: str, failed: Sequence[str] | None = None
) -> "Alert | None":
    """Record what has opened and closed of a stream; what of it is this Dag run's, or None.

    `failed`: the tasks of the Dag run that failed; None: not known.
    """
    from include.observe.alerts import Alert, changes_of, record_changes, standings

    now = datetime.now(UTC)
    found = standings(lake, stream, now, streams=stream_names(), failed=failed)
    record_changes(lake, stream.name, dag_run_id, standings=found, now=now)
    changes = changes_of(lake, stream.name, dag_run_id)
    return Alert(stream.name, tuple(changes)) if changes else None


def deadline(stream: Stream) -> DeadlineAlert | None:
    """When `until` falls behind `fresh_within`, if the run of an interval has not ended by then.

    Before that run the table is complete until the interval's beginning, less the delay.
    """
    if stream.fresh_within is None:
        return None
    return DeadlineAlert(
        name=f"tables/{stream.name} within {stream.fresh_within}",
        reference=DeadlineReference.DAGRUN_LOGICAL_DATE,
        interval=stream.fresh_within - stream.watermark_delay,
        callback=SyncCallback(deadline_missed, kwargs={"stream": stream.name}),
    )


def deadline_missed(stream: str, context: Mapping[str, Any]) -> None:
    """Tell of a table that is behind its promise. A backfill's deadline says nothing of that."""
    from include.lake.paths import open_lake

    dag_run = context["dag_run"]
    if dag_run["run_type"] == "backfill":
        return
    lake = open_lake(default_lake())
    alert = look(lake, stream_named(stream), dag_run["dag_run_id"])
    log.warning("%s", alert.text if alert else f"{stream}: the deadline passed, the table is fresh")
    send(lake, stream, context)
