"""Spark's operator and state store in plain Python, as far as the live engine uses them.

So that Hypothesis can try thousands of cuts on the live engine's own code: its packing, its
timers, the batch without data. What is taken for granted of Spark here
`test_folds_live` proves on the real one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Row

from include.fold.arrow_values import column_values, encode, event_schema
from include.fold.bucket import INSTANTS
from include.fold.definition import (
    BUCKET_STATE,
    EMITTED_AT_US,
    EVENT_TIME_US,
    INGESTED_AT_US,
    KEY,
    KEYS,
    REMOVED,
    DeadLetter,
    Emitted,
    KeyedFold,
)
from include.fold.keys import buckets_of
from include.fold.states import KeyState, States
from include.lake.columns import INSTANT
from spark_jobs.engines.deferred_processor import DeferredProcessor
from spark_jobs.engines.packing import Admission, admitted_rows, from_stream, packed_rows, to_stream
from spark_jobs.engines.state_rows import (
    StoredBucket,
    _replay_bucket,
    states_from_rows,
    unpacked_states,
)
from tests.bronze import StampedRow
from tests.fold.arrivals import as_key_state, as_known
from tests.fold.oracle import Known

INPUT_PARTITIONS = 2


class PlainOperator:
    """One stream's operator with its checkpoint. `run_batch` is one micro-batch with data."""

    def __init__(
        self, fold: KeyedFold, delay_us: int, buckets: int, since_us: int | None = None
    ) -> None:
        self._fold = fold
        self._delay_us = delay_us
        self._buckets = buckets
        self._since_us = since_us
        self.values: dict[tuple[str, int], Any] = {}
        self.timers: set[tuple[int, int]] = set()  # (bucket, ms)
        self.watermark_ms = 0  # Spark's, before any
        self.emitted = Emitted([], [], [])
        self.dead_letters: list[DeadLetter] = []
        self.late = self.excluded = self.duplicates = 0

    def seed(self, initial: Iterable[KeyState]) -> None:
        """The initial state, before the first batch: two Arrow chunks for each bucket."""
        for bucket in range(self._buckets):
            own = [
                known
                for known in initial
                if bucket_of(self._fold, known.key, self._buckets) == bucket
            ]
            for chunk in filter(None, (own[::2], own[1::2])):
                states = States(self._fold)
                for known in chunk:
                    states.put(*known)
                rows = to_stream(states.rows())
                row = SimpleNamespace(states=rows, events=None)
                self._processor(bucket).handleInitialState((bucket,), row, self._timer_values())

    def run_batch(self, rows: Sequence[StampedRow], with_no_data_batch: bool = True) -> None:
        """Fold the rows; then, as under availableNow, once more if the watermark has moved."""
        parts = filter(None, (rows[n::INPUT_PARTITIONS] for n in range(INPUT_PARTITIONS)))
        self.fold(bronze_table(self._fold, part) for part in parts)
        self.expire_timers()
        newest_ms = max(row.commit_us for row in rows) // 1_000 - self._delay_us // 1_000
        moved = newest_ms > self.watermark_ms
        self.watermark_ms = max(newest_ms, self.watermark_ms)
        if moved and with_no_data_batch:
            self.expire_timers()

    def fold(self, parts: Iterable[pa.Table]) -> None:
        """Rows of bronze, partition by partition, through the packing of the live engine."""
        packed: dict[int, list[tuple[Any, ...]]] = {}
        admission = Admission(self._delay_us, self._since_us)
        for part in parts:
            admitted = admitted_rows(part, self._fold, range(self._buckets), admission)
            for batch in packed_rows(admitted, event_schema(self._fold)):
                for row in batch.to_pylist():
                    packed.setdefault(row["bucket"], []).append(tuple(row.values()))
        for bucket, shares in packed.items():
            processor = self._processor(bucket)
            self._take(processor.handleInputRows((bucket,), iter(shares), self._timer_values()))

    def expire_timers(self) -> None:
        due = sorted(timer for timer in self.timers if timer[1] <= self.watermark_ms)
        for bucket, ms in due:
            if (bucket, ms) not in self.timers:
                continue  # another call has deleted it
            expired = SimpleNamespace(getExpiryTimeInMs=lambda ms=ms: ms)
            reports = self._processor(bucket).handleExpiredTimer(
                key=(bucket,), timerValues=self._timer_values(), expiredTimerInfo=expired
            )
            self._take(reports)
            self.timers.discard((bucket, ms))  # behind the handler

    def _timer_values(self) -> Any:
        return SimpleNamespace(getCurrentWatermarkInMs=lambda: self.watermark_ms)

    def _processor(self, bucket: int) -> DeferredProcessor:
        """A new one each time: it must keep nothing between calls."""
        processor = DeferredProcessor(self._fold, self._delay_us, self._since_us)
        processor.init(Handle(self, bucket))
        return processor

    def _take(self, reports: Iterable[Row]) -> None:
        for report in reports:
            self.late += report["rows_late"]
            self.excluded += report["rows_before_initial_state"]
            self.duplicates += report["rows_duplicate"]
            lost = ("rows_late", "rows_before_initial_state", "rows_duplicate")
            done = ("rows_folded", *lost, "pending_change")
            assert report["rows_in"] == sum(report[part] for part in done)
            if report["outputs"] is not None:
                for mine, new in zip(
                    self.emitted[:3], emitted_in(self._fold, report["outputs"])[:3], strict=True
                ):
                    mine.extend(new)
            if report["dead_letters"] is not None:
                self.dead_letters.extend(calls_in(report["dead_letters"]))

    def pending(self) -> int:
        return sum(value.waiting for value in self._stored().values())

    def states(self) -> Mapping[Any, KeyState]:
        known = {}
        for bucket, value in self._stored().items():
            if value.states is not None:
                (keys,) = self.values[KEYS, bucket]
                states = States(self._fold, unpacked_states(self._fold, keys, value))
                known |= {each.key: each for each in states}
        return known

    def _stored(self) -> dict[int, StoredBucket]:
        stored = self.values.items()
        return {at: StoredBucket(*value) for (name, at), value in stored if name == BUCKET_STATE}


class Handle:
    """The handle that Spark gives to a processor, for one key."""

    def __init__(self, operator: PlainOperator, bucket: int) -> None:
        self._operator = operator
        self._bucket = bucket

    def getValueState(self, name: str, ddl: str) -> "_Value":
        return _Value(self._operator.values, (name, self._bucket))

    def registerTimer(self, ms: int) -> None:
        assert ms > 0
        self._operator.timers.add((self._bucket, ms))

    def deleteTimer(self, ms: int) -> None:
        self._operator.timers.remove((self._bucket, ms))


class _Value:
    def __init__(self, values: dict[tuple[str, int], Any], at: tuple[str, int]) -> None:
        self._values = values
        self._at = at

    def get(self) -> Any:
        return self._values.get(self._at)

    def update(self, value: tuple[Any, ...]) -> None:
        self._values[self._at] = tuple(value)

    def exists(self) -> bool:
        return self._at in self._values

    def clear(self) -> None:
        self._values.pop(self._at, None)


def bucket_of(fold: KeyedFold, key: Any, buckets: int) -> int:
    return int(buckets_of(encode(fold.keys.shape, [key]), range(buckets))[0])


def bronze_table(fold: KeyedFold, rows: Sequence[StampedRow]) -> pa.Table:
    """The columns of bronze that a fold reads."""
    columns = event_columns(fold, rows)
    instants = {
        # Not that of a fold in processing time, whose rows happen when they are ingested.
        "event_time": [getattr(row.event, EVENT_TIME_US, row.time_us) for row in rows],
        "ingested_at": [row.ingested_us for row in rows],
        "watermark_before": [row.arrival_us for row in rows],
        "watermark_after": [row.commit_us for row in rows],
    }
    events = {name: values for name, values in columns.items() if name not in INSTANTS}
    clocks = {name: pa.array(micros, INSTANT) for name, micros in instants.items()}
    return pa.table({**events, **clocks, "is_heartbeat": [row.event is None for row in rows]})


def event_columns(fold: KeyedFold, rows: Sequence[StampedRow]) -> dict[str, pa.Array]:
    nothing = (None,) * len(fold.event_columns)
    events = list(zip(*(row.event or nothing for row in rows), strict=True))
    events = events or [()] * len(nothing)
    return {
        column.name: encode(
            column.shape, [column.shape.stored(v, "") if v is not None else v for v in values]
        )
        for column, values in zip(fold.event_columns, events, strict=True)
    }


def events_table(fold: KeyedFold, rows: Sequence[StampedRow]) -> pa.Table:
    columns = event_columns(fold, rows)
    columns.setdefault(EVENT_TIME_US, pa.array([row.time_us for row in rows], pa.int64()))
    columns.setdefault(INGESTED_AT_US, pa.array([row.ingested_us for row in rows], pa.int64()))
    keys = (None if row.event is None else fold.keys.of(row.event) for row in rows)
    columns[KEY] = encode(fold.keys.shape, list(keys))
    schema = event_schema(fold)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def emitted_in(fold: KeyedFold, outputs: bytes) -> Emitted:
    """The rows of an Arrow stream of outputs, as the fold emitted them."""
    rows = from_stream(outputs)
    values = [column_values(column, rows[column.name]) for column in fold.output_columns]
    removed = rows[REMOVED].to_pylist() if REMOVED in rows.column_names else []
    return Emitted(list(zip(*values, strict=True)), rows[EMITTED_AT_US].to_pylist(), removed)


def calls_in(dead_letters: bytes) -> list[DeadLetter]:
    """The dead letters of an Arrow stream."""
    return [DeadLetter(**row) for row in from_stream(dead_letters).to_pylist()]


class Replayed(NamedTuple):
    """The result of one part of a replay."""

    emitted: Counter[Any]
    states: dict[Any, Known]
    dead_letters: list[DeadLetter]
    stored: dict[Any, KeyState]
    duplicates: int


def replay(
    fold: KeyedFold,
    rows: Sequence[StampedRow],
    until_us: int,
    base: Mapping[Any, Known | KeyState],
) -> Replayed:
    """The rows before `until_us` through the function of the replay's cogroup, in one bucket."""
    states = States(fold)
    for key, known in base.items():
        states.put(*(known if isinstance(known, KeyState) else as_key_state(key, known)))
    before = [row for row in rows if row.time_us < until_us]
    packed = pa.table({"events": [to_stream(events_table(fold, before))]})
    made = _replay_bucket(fold, 0, packed, states.rows(), until_us)
    (outputs,), (stored,) = made["outputs"].to_pylist(), made["states"].to_pylist()
    emitted = Counter()
    if outputs is not None:
        rows_out, emitted_at_us, *_ = emitted_in(fold, outputs)
        emitted = Counter(zip(rows_out, emitted_at_us, strict=True))
    after = states_from_rows(fold, from_stream(stored))
    (dead_letters,) = made["dead_letters"].to_pylist()
    calls = [] if dead_letters is None else calls_in(dead_letters)
    known = {each.key: each for each in after}
    (duplicates,) = made["rows_duplicate"].to_pylist()
    return Replayed(
        emitted, {k: as_known(each) for k, each in known.items()}, calls, known, duplicates
    )
