"""The report of `./stateful inspect`: a stream's state in figures, as text tables or JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from include.fold.admission import US_PER_MS, instant_of, until_us
from include.fold.arrow_values import plain_rows
from include.fold.definition import KeyedFold
from include.fold.keys import bucket_ids, murmur3
from include.lake.columns import INSTANT
from include.stream.checkpoint import CommittedBatch
from include.text_table import cut, span_text, text_table, value_text

BIGGEST_KEYS = 10
STATE_CHARACTERS = 200  # of a big key's state are shown
RANKS = 10_000
OFFSET = 4  # bytes of an offset in Arrow: where a string or a list ends
Figures = NDArray[np.int64]
Row = dict[str, Any]
SUMMED = ("keys", "bytes", "pending_events", "pending_bytes")
SPREAD = {"least": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
# Counts of keys with a state, a timeout, a due timeout; sizes and ages by SPREAD; the biggest keys.
NO_KEYS: Row = {
    **dict.fromkeys(("keys", "bytes", "states", "timeouts", "due", "seen"), 0),
    **dict.fromkeys(("sizes", "ages_us", "first_timeout_us", "last_timeout_us")),
    "biggest": (),
}


def timer_column(name: str) -> str:
    """The figure that counts the keys that have set the timer `name`."""
    return f"timer_{name}"


def biggest_keys(rows: pa.Table, sizes: Figures) -> list[Row]:
    """The keys of the most bytes, the biggest first, with the beginning of their states as text."""
    most = pa.array(np.argsort(-sizes, kind="stable")[:BIGGEST_KEYS])
    taken = rows.take(most)
    shown = pa.table(
        {
            "key": taken["key"],
            "bytes": pa.array(sizes).take(most),
            "changed_at": taken["changed_at_us"].cast(INSTANT),
            "timeout_at": taken["timeout_at_us"].cast(INSTANT),
            "state": taken["state"],
        }
    )
    biggest = plain_rows(shown)
    for row in biggest:
        row["state"] = None if row["state"] is None else value_text(row["state"])[:STATE_CHARACTERS]
    return biggest


def value_bytes(values: pa.Array) -> Figures:
    """The bytes of each value in Arrow's buffers.

    Without validity bits, and with a byte for a boolean, so that a value's size does not depend on its
    neighbours. (A slice's own `nbytes` takes a hundred times as long.)
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return sum((value_bytes(column) for column in values.flatten()), np.zeros(1, np.int64))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return OFFSET + _filled(pc.binary_length(values))
    if pa.types.is_map(kind):  # as the list of pairs that it is
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        values, kind = values.cast(pa.list_(pair)), pa.list_(pair)
    if pa.types.is_list(kind):
        ends = [0, *_filled(pc.list_value_length(values)).cumsum()]
        return OFFSET + np.diff(np.append(0, value_bytes(values.flatten()).cumsum())[ends])
    return np.full(len(values), -(-kind.bit_width // 8))


def _filled(lengths: pa.Array) -> Figures:
    return np.asarray(pc.fill_null(lengths, 0), np.int64)


@dataclass(frozen=True, kw_only=True)
class StateReport:
    """A stream's state after its newest committed batch.

    Bytes are uncompressed, as of Arrow. Ages are from a key's last change to `until`, and None before
    anything is complete.
    """

    stream: str
    generation: int
    batch_id: int
    checkpoint: str
    clock: str  # event time or ingestion time
    until: datetime | None
    key: str
    keys: int
    keys_without_state: int
    bytes: int
    pending_events: int
    pending_bytes: int
    # By SPREAD: exact for few keys; for many a rank is off by 1 / RANKS at most.
    bytes_per_key: Row | None
    age_us: Row | None
    # The next batch fires what is due: 0 unless the run ended before its batch without data.
    timeouts: Row
    biggest_keys: Sequence[Row]  # key, bucket, bytes, changed_at, timeout_at, state
    partitions: Sequence[Row]  # partition, buckets, and the sums of these
    partition_skew: Row  # keys, bytes: the largest in times of the median; None where that is 0
    buckets: Sequence[Row]  # bucket, partition, SUMMED; zeros for one that has nothing yet
    bucket_skew: Row
    # None in a stream that does not use them.
    seen_values: int | None = None  # by which events are known as duplicates
    timers: Mapping[str, int] | None = None  # the number of keys that have set each


def report_of(
    stream: str,
    fold: KeyedFold,
    batch: CommittedBatch,
    shape: tuple[int, int],
    measured: Mapping[int | None, Row],
    waiting: Mapping[int, tuple[int, int]],
) -> StateReport:
    """The report of the state after `batch`.

    `shape` is the number of buckets and of state partitions; `measured` is by bucket, and of all
    under None; `waiting` gives the pending events of a bucket, and their bytes.
    """
    complete_ms = batch.watermark_ms
    buckets = _buckets(shape, measured, waiting)
    partitions = [_partition(number, buckets) for number in range(shape[1])]
    of_all = measured.get(None, NO_KEYS)
    return StateReport(
        stream=stream,
        generation=batch.generation,
        batch_id=batch.batch_id,
        checkpoint=batch.checkpoint,
        clock="ingestion time" if fold.in_processing_time else "event time",
        until=_instant(None if complete_ms is None else until_us(complete_ms * US_PER_MS)),
        key=fold.keys.text(),
        **_sums(buckets),
        keys_without_state=of_all["keys"] - of_all["states"],
        bytes_per_key=_spread(of_all["sizes"]),
        age_us=_spread(of_all["ages_us"]),
        timeouts={
            "kind": fold.timeout,
            "ttl": None if fold.ttl is None else str(fold.ttl),
            "keys_with": of_all["timeouts"],
            "keys_without": of_all["keys"] - of_all["timeouts"],
            "due": of_all["due"],
            "next_at": _instant(of_all["first_timeout_us"]),
            "last_at": _instant(of_all["last_timeout_us"]),
        },
        biggest_keys=of_all["biggest"],
        partitions=partitions,
        partition_skew=_skew_of(partitions),
        buckets=buckets,
        bucket_skew=_skew_of(buckets),
        seen_values=of_all["seen"] if fold.deduplicate else None,
        timers={name: of_all.get(timer_column(name), 0) for name in fold.timers} or None,
    )


def _spread(figures: Sequence[int] | None) -> Row | None:
    # Never below 0: buckets that a batch touched may have completed a little more.
    if figures is None:
        return None
    return dict(zip(SPREAD, (max(each, 0) for each in figures), strict=True))


def _instant(at_us: int | None) -> datetime | None:
    return None if at_us is None else instant_of(at_us)


def _buckets(
    shape: tuple[int, int],
    measured: Mapping[int | None, Row],
    waiting: Mapping[int, tuple[int, int]],
) -> list[Row]:
    rows = []
    for bucket in bucket_ids(*shape):
        of_bucket = measured.get(bucket, NO_KEYS)
        figures = (of_bucket["keys"], of_bucket["bytes"], *waiting.get(bucket, (0, 0)))
        place = {"bucket": bucket, "partition": murmur3(bucket) % shape[1]}  # as Spark does
        rows.append(place | dict(zip(SUMMED, figures, strict=True)))
    return rows


def _partition(number: int, buckets: Sequence[Row]) -> Row:
    own = [bucket for bucket in buckets if bucket["partition"] == number]
    return {"partition": number, "buckets": len(own)} | _sums(own)


def _sums(rows: Sequence[Row]) -> dict[str, int]:
    return {name: sum(row[name] for row in rows) for name in SUMMED}


def _skew_of(parts: Sequence[Row]) -> Row:
    """The largest part, by keys and by bytes, in times of the median; None where that is 0."""
    figures = {name: [part[name] for part in parts] for name in SUMMED[:2]}
    return {name: max(of) / median(of) if median(of) else None for name, of in figures.items()}


WIDTH = 60  # of a key, or of its state
SHOWN = (
    *("keys", "keys_without_state", "bytes", "pending_events", "pending_bytes", "bytes_per_key"),
    *("timeouts", "timers", "seen_values", "partition_skew", "bucket_skew"),
)


def report_json(report: StateReport) -> str:
    """The report as one JSON object; instants are ISO 8601 in UTC."""

    def plain(value: object) -> str:
        return value.isoformat() if isinstance(value, datetime) else value_text(value)

    return json.dumps(asdict(report), default=plain, indent=2)


def format_report(report: StateReport) -> str:
    """The report as text tables; keys and states are cut to fit a terminal."""
    complete = f"complete until {_text(report.until)}" if report.until else "nothing complete yet"
    figures = {name: getattr(report, name) for name in SHOWN}
    ages = (report.age_us or {}).items()
    figures["since_last_change"] = {name: span_text(us / 1_000_000) for name, us in ages}
    lines = [
        f"{report.stream}: state after batch {report.batch_id}, {complete} ({report.clock})",
        f"  {report.checkpoint}",
        *text_table(("figure", ""), list(_figures(figures))),
    ]
    for name in ("biggest_keys", "partitions"):
        if rows := getattr(report, name):
            cells = [[cut(_text(value), WIDTH) for value in row.values()] for row in rows]
            lines += [name, *text_table(list(rows[0]), cells)]
    return "\n".join(lines)


def _figures(values: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, str]]:
    """The figures that are not None, by their paths: `timeouts.due`."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _figures(value, f"{of}{name}.")
        elif value is not None:
            yield f"{of}{name}", _text(value)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return f"{value:,}" if isinstance(value, int) else value_text(value)
