"""Multisets of rows: what makes one of another, and what is left of rows that are taken back."""

import struct
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.lake.errors import LakeError
from include.lake.multiset import WEIGHT, difference, net

NAN = struct.unpack("d", b"\x01\0\0\0\0\0\xf8\x7f")[0]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "a", "b", None]),
    "number": (pa.int64(), [0, -1, 2**62, None]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), NAN, float("inf"), None]),
    "half": (pa.float32(), [0.0, -0.0, float("nan"), None]),
    "truth": (pa.bool_(), [True, False, None]),
    "bytes": (pa.binary(), [b"", b"\0", None]),
    "money": (pa.decimal128(12, 2), [Decimal("0.00"), Decimal("-1.10"), None]),
    "day": (pa.date32(), [date(2026, 1, 1), None]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), None]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, None], None]),
    "struct": (pa.struct([("a", pa.string()), ("b", pa.float64())]), [{"a": "x", "b": -0.0}, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], None]),
}
KINDS = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
ROW = st.fixed_dictionaries({name: st.sampled_from(of) for name, (_, of) in VALUES.items()})
FEW = st.lists(ROW, min_size=1, max_size=4)


def bits(value: Any) -> Any:
    return struct.pack("d", value) if isinstance(value, float) else repr(value)


def counted(rows: pa.Table, weights: Any = None) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row, weight in zip(rows.to_pylist(), weights or [1] * rows.num_rows, strict=True):
        found[tuple(bits(row[name]) for name in KINDS.names)] += weight
    return Counter({row: n for row, n in found.items() if n})


def table(rows: list[dict[str, Any]], numbers: list[int]) -> pa.Table:
    """Some of the rows, in two chunks, of which one is a slice."""
    made = pa.Table.from_pylist([rows[n % len(rows)] for n in numbers], KINDS)
    return pa.concat_tables([made.slice(0, len(numbers) // 2), made.slice(len(numbers) // 2)])


@given(FEW, st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_a_difference_makes_the_new_rows_of_the_old_ones(
    rows: list[Any], new: list[int], old: list[int], back: list[int]
):
    """`old` has some that came, went and came again."""
    wanted, known = table(rows, new), table(rows, [*old, *back, *back, *back])
    weights = [1] * len(old) + [1] * len(back) + [-1] * len(back) + [1] * len(back)
    made = difference(wanted, known, pa.chunked_array([pa.array(weights, pa.int32())]))
    whole = pa.concat_tables([known, made.select(KINDS.names)])
    weights += made[WEIGHT].to_pylist()
    assert counted(whole, weights) == counted(wanted)
    weighted = whole.append_column(WEIGHT, pa.array(weights, pa.int32()))
    assert counted(net(weighted)) == counted(wanted)


def test_a_row_that_is_not_there_cannot_be_taken_back():
    rows = pa.table({"a": [1, 2], WEIGHT: pa.array([1, -1], pa.int32())})
    with pytest.raises(LakeError):
        net(rows)


def test_only_the_named_columns_tell_rows_apart():
    rows = pa.table({"a": [1, 1, 1], "when": [1, 2, 3], "_w": pa.array([1, 1, -1], pa.int32())})
    assert net(rows, "_w", ["a"])["a"].to_pylist() == [1]
