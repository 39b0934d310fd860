"""Send alerts to the notifiers of `include/streams/notify.py`, also when a deadline is missed."""

import copy
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowTaskTimeout

from include.lake.errors import SettingsError
from include.registry import stream_named
from include.settings import Stream, default_lake
from include.streams import FOLDER

if TYPE_CHECKING:
    from include.observe.alerts import Alert, Look

log = logging.getLogger(__name__)

NOTIFY_MODULE, NOTIFY_FILE = "include.streams.notify", f"{FOLDER}/notify.py"
# The task holds the pool of its stream meanwhile.
ANSWERS_WITHIN = timedelta(minutes=1)


def notifiers() -> tuple[Callable[[Any], None], ...]:
    """The notifiers of `notify.py`; raises SettingsError when that file is wrong."""
    if find_spec(NOTIFY_MODULE) is None:  # a folder of your own need not have it
        return ()
    try:
        return tuple(importlib.import_module(NOTIFY_MODULE).NOTIFY)
    # Whatever the user's file raises, or has in place of a tuple: it is that file which is wrong.
    except Exception as error:
        raise SettingsError(
            f"{NOTIFY_FILE}: {type(error).__name__}: {error}: give NOTIFY = (..., ), the comma too "
            "where there is one",
            subject=NOTIFY_FILE,
        ) from error


def tell(
    by: str,
    looks: "Sequence[Look]",
    at: datetime,
    stores: Mapping[str, Any],
    context: Mapping[str, Any],
) -> "Alert | None":
    """Notify of all that has opened and closed, and store what is known when all notifiers have answered."""
    from include.observe.alerts import alert_of

    known = {look.subject: stores[look.subject].get(look.subject) or {} for look in looks}
    alert = alert_of(by, looks, known)
    if alert is not None:
        log.warning("%s", alert.text)
        send(alert, context)
    for look in looks:
        stores[look.subject].set(look.subject, look.notified(known[look.subject], at))
    return alert


def send(alert: "Alert", context: Mapping[str, Any]) -> None:
    """Call all notifiers; raises ExceptionGroup at the end for those that failed or did not answer."""
    failures: list[Exception] = []
    for notifier in notifiers():
        try:
            _notify(notifier, alert, context)
        except Exception as error:  # noqa: BLE001 (whatever theirs raises: the others come first)
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of NOTIFY ({NOTIFY_FILE}) failed", failures)


def _notify(notifier: Callable[[Any], None], alert: "Alert", context: Mapping[str, Any]) -> None:
    """Call a notifier; raises TimeoutError after ANSWERS_WITHIN, or whatever it raises."""
    from airflow.sdk.execution_time.timeout import timeout

    try:
        # The alarm of the task's own timeout ends with it: what is left to do waits for nobody.
        with timeout(ANSWERS_WITHIN.total_seconds()):  # type: ignore[no-untyped-call]
            # A copy: a notifier renders its templates into itself, and would say the first alert for ever.
            copy.deepcopy(notifier)({**context, "alert": alert})
    except AirflowTaskTimeout as error:  # no Exception: who sends would take it for an end
        name = type(notifier).__name__
        raise TimeoutError(f"{name} has not answered within {ANSWERS_WITHIN}") from error


def deadline(stream: Stream) -> DeadlineAlert | None:
    """The Dag's deadline, if its stream promises `fresh_within`: later, the table is behind."""
    if stream.fresh_within is None:
        return None
    return DeadlineAlert(
        name=f"tables/{stream.name} within {stream.fresh_within}",
        reference=DeadlineReference.DAGRUN_LOGICAL_DATE,
        interval=stream.fresh_within - stream.watermark_delay,
        callback=SyncCallback(deadline_missed, kwargs={"stream": stream.name}),
    )


def deadline_missed(stream: str, context: Mapping[str, Any]) -> None:
    """Notify if the table is behind its promise; deadlines of backfill runs say nothing of that."""
    from include.lake.paths import open_lake
    from include.observe.alerts import behind_alert

    if context["dag_run"]["run_type"] == "backfill":
        return
    alert = behind_alert(open_lake(default_lake()), stream_named(stream), datetime.now(UTC))
    log.warning("%s", alert.text if alert else f"{stream}: the deadline passed, the table is fresh")
    if alert is not None:
        send(alert, context)
