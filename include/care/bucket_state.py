"""What the keys of one bucket come to, measured where their states are read.

Only this leaves there: sums, some of the sizes and times, and the biggest keys. So a state of any
size can be reported.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from include.fold.arrow_values import plain_values
from include.fold.conform import conformed
from include.fold.deduplicate import SEEN
from include.fold.timers import TIMERS
from include.text_table import value_text

BIGGEST_KEYS = 10
STATE_CHARACTERS = 200  # shown of a big key's state
POINTS = 1_000
OFFSET = 4  # the bytes by which Arrow says where a text or a list ends

Figures = NDArray[np.int64]


class Sample(NamedTuple):
    """How many figures there are, and all of them in order; of more than POINTS so many, evenly
    by rank, the least and the most among them."""

    of: int
    points: Figures


@dataclass(frozen=True, kw_only=True)
class BucketState:
    """The keys of a bucket. Times are microseconds, of the keys that have one."""

    bucket: int
    bytes: int
    due: int
    sizes: Sample
    changed_us: Sample
    timeouts_us: Sample
    biggest: list[dict[str, Any]]  # rows of `state_rows_ddl` with `bytes`; their states are text
    seen: int = 0  # values by which events are known as duplicates
    timers: dict[str, int] = field(default_factory=dict)  # how many keys have set each


def measure_bucket(rows: pa.Table, due_until_us: int | None) -> BucketState:
    """What a bucket's states, rows of `state_rows_ddl`, come to: of one key or more.

    Timeouts before `due_until_us` are due; None for no timeout.
    """
    columns = rows.drop_columns(["bucket"]).to_struct_array().combine_chunks()
    sized = rows.append_column("bytes", [value_bytes(columns)])
    # By key, too, so that the same state gives the same answer.
    order = [("bytes", "descending"), ("by_key", "ascending")]
    ranked = sized.select(["bytes"]).append_column("by_key", _comparable(rows["key"]))
    biggest = sized.take(pc.select_k_unstable(ranked, BIGGEST_KEYS, order))
    beside = [name for name in (SEEN, TIMERS) if name in rows.column_names]
    due = pc.less(rows["timeout_at_us"], pa.scalar(due_until_us, pa.int64()))
    return BucketState(
        bucket=rows["bucket"][0].as_py(),
        bytes=pc.sum(sized["bytes"]).as_py(),
        due=pc.sum(due, min_count=0).as_py(),
        sizes=_sample(sized["bytes"]),
        changed_us=_sample(rows["changed_at_us"]),
        timeouts_us=_sample(rows["timeout_at_us"]),
        biggest=shown_rows(biggest.drop_columns(beside)),
        seen=_count_seen(rows) if SEEN in beside else 0,
        timers=_count_timers(rows) if TIMERS in beside else {},
    )


def _count_seen(rows: pa.Table) -> int:
    return int(pc.sum(pc.list_value_length(rows[SEEN]), min_count=0).as_py())


def _count_timers(rows: pa.Table) -> dict[str, int]:
    names = [each.name for each in rows.schema.field(TIMERS).type]
    return {name: pc.count(pc.struct_field(rows[TIMERS], name)).as_py() for name in names}


def _comparable(keys: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    is_nested = pa.types.is_nested(keys.type)
    return pa.array(map(repr, keys.to_pylist()), pa.string()) if is_nested else keys


def value_bytes(values: pa.Array) -> Figures:
    """The bytes of each value in Arrow's buffers.

    Without the bits that say what is null, and with a byte for a boolean: so a value has as many
    whatever it lies beside. (A slice's own `nbytes` takes a hundred times as long.)
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return sum((value_bytes(column) for column in values.flatten()), np.zeros(1, np.int64))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return OFFSET + _filled(pc.binary_length(values))
    if pa.types.is_map(kind):  # as the list of pairs that it is
        values = conformed(
            values, pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        )
        kind = values.type
    if pa.types.is_list(kind):
        ends = [0, *_filled(pc.list_value_length(values)).cumsum()]
        return OFFSET + np.diff(np.append(0, value_bytes(values.flatten()).cumsum())[ends])
    return np.full(len(values), -(-kind.bit_width // 8))


def _filled(lengths: pa.Array) -> Figures:
    return np.asarray(pc.fill_null(lengths, 0), np.int64)


def _sample(figures: pa.ChunkedArray) -> Sample:
    ordered = np.sort(figures.drop_null().to_numpy())
    ranks = np.linspace(0, len(ordered) - 1, min(len(ordered), POINTS))
    return Sample(len(ordered), ordered[ranks.astype(int)])


def shown_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows for people: their states are text, of a long one its beginning."""
    columns = zip(*map(plain_values, rows.columns), strict=True)
    found = [dict(zip(rows.column_names, values, strict=True)) for values in columns]
    return [row | {"state": _shown(row["state"])} for row in found]


def _shown(state: dict[str, Any] | None) -> str | None:
    return None if state is None else value_text(state)[:STATE_CHARACTERS]
