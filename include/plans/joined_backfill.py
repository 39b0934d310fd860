"""Neighbouring intervals of a backfill in one JVM, whose start is most of what a small one costs.

The Dag run that comes first leads: its job recomputes its own interval, and then the next ones, one
after the other. Each is a recompute of its own: its base is the savepoint that the one before has
written, its rows are replaced in a commit of their own, and `ops/intervals` has its row, so a job that
is killed leaves whole intervals behind. Their own Dag runs then find them done, or do them.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from statistics import median

from croniter import croniter
from deltalake.exceptions import DeltaError

from include.coverage.effect import state_between
from include.coverage.table_coverage import table_coverage
from include.fold.instants import micros_of
from include.lake.ops import read_ops, update_ops
from include.lake.paths import Lake, LakeError
from include.plans.open_stream import open_stream
from include.plans.plan_recompute import recorded_recomputes, settled_until
from include.settings import SettingsError, Stream
from include.stream_definition import load_definition

log = logging.getLogger("job")

# Before the id of the leader's Dag run, until the interval's own Dag run has taken the row.
JOINED = "joined with "
MOST = 100
# Of the task's timeout that all of them may take, by what was recorded.
SHARE = 0.25
UNKNOWN = timedelta(seconds=60)  # of one, before any is recorded


def following_ends(
    lake: Lake, stream: Stream, until: datetime, is_waiting: Callable[[datetime], bool]
) -> list[datetime]:
    """The ends of the intervals after `until` that are to be recomputed with the one before it.

    By the schedule, as long as a Dag run of each waits (`is_waiting`, of its logical date) and live has
    settled it. None of an update stream: no row of its table is a backfill's.
    """
    settled = settled_until(lake, stream.name)
    if settled is None or load_definition(stream).fold.output_mode == "update":
        return []
    ends: list[datetime] = []
    ticks, start = croniter(stream.schedule, until.astimezone(UTC)), until
    for _ in range(_most(lake, stream) - 1):
        end = ticks.get_next(datetime)
        if end > settled or not is_waiting(start):
            break
        ends.append(end)
        start = end
    return ends


def _most(lake: Lake, stream: Stream) -> int:
    """How many intervals one job may recompute."""
    recorded = recorded_recomputes(lake, stream.name)
    seconds = median(took for _, took in recorded) if recorded else UNKNOWN.total_seconds()
    return min(MOST, max(1, int(stream.timeout.total_seconds() * SHARE / seconds)))


def take_joined(
    lake: Lake, stream: Stream, start: datetime, until: datetime, dag_run_id: str
) -> bool:
    """Whether `[start, until)` was recomputed for this Dag run, by it or by a leader; it is its own now.

    Not when the table is wrong there by now, as after rows that came later still: it is then to be
    recomputed once more.
    """
    rows = read_ops(lake, "intervals", {"stream": stream.name, "kind": "recompute"}).to_pylist()
    ours = [
        row
        for row in rows
        if (row["start"], row["until"]) == (start, until)
        and (row["dag_run_id"] == dag_run_id or (row["dag_run_id"] or "").startswith(JOINED))
    ]
    if not ours or not _is_right(lake, stream, start, until):
        return False
    newest = max(ours, key=lambda row: row["recomputed_at"])
    if newest["dag_run_id"] != dag_run_id:
        taken = {"run_id": newest["run_id"], "dag_run_id": dag_run_id}
        update_ops(lake, "intervals", ["run_id"], [taken])
    return True


def _is_right(lake: Lake, stream: Stream, start: datetime, until: datetime) -> bool:
    """By the ledger and bronze as they are now. What cannot be told, the job is to say."""
    try:
        judged = table_coverage(lake, stream, open_stream(lake, stream).identity)
    except (DeltaError, LakeError, OSError, SettingsError) as error:
        log.warning("%s: recomputed, whatever was before: %s", stream.name, error)
        return False
    known_until_us = judged.coverage.until_us
    if known_until_us is None or known_until_us < micros_of(until):
        return False  # a rewind has taken it back: nothing is wrong there, as nothing is there
    between = state_between(judged.coverage, micros_of(start), micros_of(until))
    return judged.doubt is None and between == "right"
