"""What a second reader of a landed file has is what bronze has; and refused rows stay what they were."""

import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.landing.landed_file import open_rows
from include.landing.landed_values import RefusedError, reader_of_events
from include.landing.rescue import Rescue, read_rescued
from include.settings import Field, Source, Times

NOON_US = 1_790_000_000_000_000
AT = datetime(2026, 3, 1, tzinfo=UTC)
ZONED = Times(zone="UTC")


def source_of(kind: str, times: Times = ZONED) -> Source:
    field = Field(name="value", type=kind, comment="It")
    return Source(name="things", time_field="at", comment="Things", times=times, fields=(field,))


def parquet(values: pa.Array, at: pa.Array | None = None, **options: Any) -> bytes:
    sink = io.BytesIO()
    at = pa.array([AT] * len(values), pa.timestamp("us", "UTC")) if at is None else at
    pq.write_table(pa.table({"at": at, "value": values}), sink, **options)
    return sink.getvalue()


def judged(source: Source, read: Any) -> Any:
    try:
        return reader_of_events(source)(read(), NOON_US)
    except RefusedError as refusal:
        return refusal.code


def events(source: Source, content: bytes, name: str = "a.parquet") -> list[Any]:
    rows = open_rows(name, content, source)
    return [judged(source, lambda item=item: rows.values(item)) for item in rows.items()]


@pytest.mark.parametrize("year", [1, 1600, 2263, 9999])
def test_times_in_96_bits_beyond_those_of_nanoseconds(year: int):
    instant = datetime(year, 12, 31, tzinfo=UTC)
    values = pa.array([instant], pa.timestamp("us", "UTC"))
    source = source_of("timestamp")
    (stored,) = events(source, parquet(values))
    assert events(source, parquet(values, use_deprecated_int96_timestamps=True)) == [stored]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_refused_alone(number: float):
    source = source_of("int", Times(format="epoch_s"))
    content = parquet(pa.array([1, 2]), pa.array([1.7e9, number]))
    first, second = events(source, content)
    assert first.values == (1,)
    assert second == "unreadable_time"


NAMED = pa.array([[(b"alice", 1)]], pa.map_(pa.binary(), pa.int64()))
LATER = [
    ("double", pa.array([float("nan")]), "wrong_type"),
    ("date", pa.array([2**30], pa.date32()), "wrong_type"),
    ("array<bigint>", pa.array([[b"alice"]]), "wrong_type"),
    ("array<binary>", pa.array([[b"alice"]]), [b"alice"]),
    ("binary", pa.array([b"alice"]), b"alice"),
    ("map<binary, bigint>", NAMED, [(b"alice", 1)]),
]


@pytest.mark.parametrize(("kind", "values", "expected"), LATER, ids=lambda each: str(each)[:30])
def test_what_was_rescued_of_parquet_is_read_as_if_it_landed_once_it_is_declared(
    kind: str, values: pa.Array, expected: Any
):
    """A value that is not of the field's type is null; one that is, is that value."""
    before = source_of("int")
    columns = {"at": pa.array([AT], pa.timestamp("us", "UTC")), "value": [1], "later": values}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    (item,) = open_rows("a.parquet", sink.getvalue(), before).items()
    text = Rescue(before).text(item)
    field = Field(name="later", type=kind, comment="It", required=False)
    now = judged(replace(before, fields=(*before.fields, field)), lambda: item)
    assert (now if now == "wrong_type" else now.values[1]) == expected
    assert read_rescued(kind, "later", [text]) == [None if now == "wrong_type" else expected]
