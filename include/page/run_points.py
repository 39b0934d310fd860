"""The runs of a stream, and its compactions, through time: each with where its seconds went."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from include.page.recorded import Recorded, Row
from include.settings import Stream

RUN_SERIES = (
    "run_id",
    "job",
    "started_at",
    "ended_at",
    "outcome",
    "error",
    "rows_in",
    "rows_folded",
    "rows_late",
    "rows_pending",
    "rows_out",
    "until",
    "jvm_rss_bytes",
    "python_rss_bytes",
    "jvm_start_seconds",
)
BATCH_SERIES = ("run_id", "durations_ms", "rows_in", "rows_in_most", "buckets_touched")
DRAINS = ("run_stream", "compact_state")
# Of Spark's durations of a batch: what is planning, and what is bookkeeping of the position.
PLANNING = ("queryPlanning", "latestOffset", "getBatch")
POSITION = ("walCommit", "commitOffsets")
PARTS = ("around batches", "planning", "fold, store and tables", "position", "other")


@dataclass(frozen=True, kw_only=True)
class RunPoint:
    """A run of the stream, or a compaction; rows of None were not counted, as of one that failed."""

    run_id: str
    job: str
    started_at: datetime
    ended_at: datetime
    outcome: str
    error: str | None
    rows_in: int | None
    rows_folded: int | None
    rows_late: int | None
    rows_pending: int | None
    rows_out: int | None
    until: datetime | None
    rss_bytes: int
    parts: Mapping[str, float]  # seconds by PARTS: together the run's
    jvm_start_seconds: float | None = None  # before it; None: of another run's JVM, or not known
    bucket_skew: float | None = (
        None  # rows of the fullest bucket of a batch, of those touched the mean
    )

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def lag_seconds(self) -> float | None:
        """How far the table was behind when the run ended."""
        return None if self.until is None else (self.ended_at - self.until).total_seconds()


def read_runs(recorded: Recorded, stream: Stream) -> tuple[RunPoint, ...]:
    """The runs that ended in the window, in that order."""
    rows = recorded.in_window("runs", "ended_at", {"subject": stream.name}, RUN_SERIES)
    drains = [row for row in rows if row["job"] in DRAINS]
    batches = _batches(recorded, stream, drains)
    return tuple(_run(row, batches[row["run_id"]]) for row in drains)


def _batches(
    recorded: Recorded, stream: Stream, runs: Sequence[Row]
) -> Mapping[str, Sequence[Row]]:
    """What is shown of each batch, by its run: Spark's durations, in milliseconds, and the rows of
    its buckets. The first run may have begun before the window."""
    began = min((run["started_at"] for run in runs), default=recorded.since)
    where = {"stream": stream.name}
    found: dict[str, list[Row]] = defaultdict(list)
    for row in recorded.in_window("batches", "committed_at", where, BATCH_SERIES, began):
        found[row["run_id"]].append(row)
    return found


def _run(row: Row, batches: Sequence[Row]) -> RunPoint:
    known = {name: row[name] for name in RUN_SERIES if name in RunPoint.__dataclass_fields__}
    seconds = (row["ended_at"] - row["started_at"]).total_seconds()
    rss = (row["jvm_rss_bytes"] or 0) + (row["python_rss_bytes"] or 0)
    # A killed run has left no durations.
    durations = [json.loads(batch["durations_ms"] or "{}") for batch in batches]
    return RunPoint(
        **known,
        rss_bytes=rss,
        parts=_parts(seconds, durations),
        bucket_skew=max(map(_bucket_skew, batches), default=None),
    )


def _bucket_skew(batch: Row) -> float:
    """1.0 where it has no rows, or of a release that did not count them."""
    if not batch["rows_in"] or not batch["rows_in_most"]:
        return 1.0
    return float(batch["rows_in_most"] * batch["buckets_touched"] / batch["rows_in"])


def _parts(seconds: float, batches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """A run's seconds: Spark tells what its batches took, and the rest is the session, the ledger
    and a savepoint."""

    def sum_of(*names: str) -> float:
        return sum(batch.get(name, 0) for batch in batches for name in names) / 1_000

    whole = sum_of("triggerExecution")
    planning, work, position = sum_of(*PLANNING), sum_of("addBatch"), sum_of(*POSITION)
    other = max(whole - planning - work - position, 0.0)
    around = max(seconds - whole, 0.0)
    return dict(zip(PARTS, (around, planning, work, position, other), strict=True))
