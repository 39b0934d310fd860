"""A product table takes any output record: whatever its fields are called."""

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.fold.arrow_values import outputs_table
from include.fold.definition import (
    Definition,
    Emitted,
    KeyedFold,
    flat_map_groups_with_state,
    output_ddl,
)
from include.fold.records import columns_of
from spark_jobs.engines.packing import to_stream, unpack
from spark_jobs.tables.product import Product


class Event(NamedTuple):
    key: str
    event_time_us: int


class State(NamedTuple):
    seen: int


class Named(NamedTuple):
    """Fields called as something is on the way to the table."""

    key: str
    before: int
    after: int
    net: float
    sign: int
    new: str
    old: str | None
    bucket: int
    outputs: tuple[str, ...]
    events: int
    rows: int
    row: str
    value: bool
    select: int
    table: str
    date: str
    count: int
    target: int
    source: str
    c0: int
    c1: int
    größe: int


def never(key, events, state):
    yield from ()


def fold_of(mode: str, output: type = Named) -> KeyedFold:
    return flat_map_groups_with_state(
        never,
        key="key",
        event=Event,
        state=State,
        output=output,
        output_mode=mode,
        project=lambda key, state: None,
    )


def named(key: str, number: int) -> Named:
    old = None if number % 2 else "an old one"
    return Named(
        key, number, -number, number / 2, 1, "n", old, 3, ("a", key), 5, 6, "r", number > 1, 7,
        "t", "d", 8, 9, "s", 0, 1, 10,
    )  # fmt: skip


def frame(spark, fold, rows, removed=()):
    """(row, emitted at) as a batch hands them over: packed, and unpacked."""
    values, times_us = zip(*rows, strict=True) if rows else ([], [])
    emitted = Emitted(list(values), list(times_us), list(removed))
    stream = bytearray(to_stream(outputs_table(fold, emitted)))
    packed = spark.createDataFrame([(0, stream)], "bucket int, outputs binary")
    return unpack(packed, "outputs", output_ddl(fold))


def product_table(spark, lake, fold, is_rebuilt=False) -> Product:
    comments = {column.name: "one" for column in columns_of(fold.output)}
    definition = Definition(fold, "A table", comments)
    for _ in range(2):  # it is opened with the columns that it was made with
        table = Product(lake, "named", definition, is_rebuilt, spark)
    return table


def rows_in(table: Product) -> Counter:
    rows = DeltaTable(table.path).to_pyarrow_table().to_pylist()
    made = []
    for row in rows:
        values = (tuple(v) if isinstance(v, list) else v for v in map(row.get, Named._fields))
        made.append((Named(*values), micros_of(row["emitted_at"])))
    return Counter(made)


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["append", "update"])
def test_where_few_rows_change_the_change_feed_has_those_alone(spark, lake, mode):
    fold = fold_of(mode)
    table = product_table(spark, lake, fold)
    begun, nothing = DeltaTable(table.path).version(), frame(spark, fold, [], [])
    assert table.replace(nothing, {}) == table.replace(nothing, {}, is_recreated=True) == (0, 0)
    assert DeltaTable(table.path).version() == begun + 2
    is_update = [False] * 60 if mode == "update" else ()
    # Some rows are there twice in a table that may have them so.
    old = [(named(f"k{n if is_update else n // 2}", 1), 5) for n in range(60)]
    table.write_once(frame(spark, fold, old, is_update), "named/1", 0, {})
    new = [*old[1:], (named("k99", 4), 7)]  # one row less of two, or of one; and one more
    new[7] = (named("k8", 3), 9)
    assert table.replace(frame(spark, fold, new, is_update), {}) == (60, 60)
    assert rows_in(table) == Counter(new)
    now = DeltaTable(table.path)
    assert pa.table(now.load_cdf(starting_version=now.version())).num_rows < 10
    assert table.replace(frame(spark, fold, new, is_update), {}) == (60, 60)
    assert DeltaTable(table.path).file_uris() == now.file_uris()
    assert table.replace(frame(spark, fold, new[30:], is_update[30:]), {}) == (60, 30)
    assert rows_in(table) == Counter(new[30:])


class Mapped(NamedTuple):
    key: str
    sums: dict[str, int | None]


@pytest.mark.spark
def test_a_null_in_a_map_is_replaced_by_0(spark, lake):
    """Spark takes one for the other where it groups by maps, or fails."""
    fold = fold_of("append", Mapped)
    table = product_table(spark, lake, fold)
    old = outputs_table(fold, Emitted([Mapped("k", {"a": None})], [5], []))
    table.write_once(old, "named/1", 0, {})
    new = frame(spark, fold, [(Mapped("k", {"a": 0}), 5)])
    assert table.replace(new, {}) == (1, 1)
    (row,) = DeltaTable(table.path).to_pyarrow_table(columns=["key", "sums"]).to_pylist()
    assert row == {"key": "k", "sums": [("a", 0)]}


class Long(NamedTuple):
    key: str
    more: str | None
    total: int


class Retyped(NamedTuple):
    key: str
    total: float


@pytest.mark.spark
@pytest.mark.parametrize("mode", [pytest.param("append", marks=pytest.mark.full), "update"])
def test_a_rebuild_replaces_columns_and_partitions_in_one_commit(spark, lake, mode):
    """The new one has another output mode, a column less, and one of another type."""
    other = "update" if mode == "append" else "append"
    begun = product_table(spark, lake, fold_of(other, Long))
    old = frame(spark, fold_of(other, Long), [(Long("a", "x", 1), 1)], [False][: mode == "append"])
    begun.write_once(old, "named/1", 0, {})
    known, fold, removed = (
        DeltaTable(begun.path),
        fold_of(mode, Retyped),
        [False][: mode == "update"],
    )
    table = product_table(spark, lake, fold, is_rebuilt=True)
    rows = frame(spark, fold, [(Retyped("b", 0.5), 2)], removed)
    assert table.replace(rows, {}) == (1, 1)
    now = DeltaTable(begun.path)
    assert (now.metadata().id, now.version()) == (known.metadata().id, known.version() + 1)
    comments = [field.metadata["comment"] for field in now.schema().fields]
    assert comments[:2] == ["one", "one"]
    assert all(comments)
    again = product_table(spark, lake, fold)  # its columns and partitions are the documented ones
    again.write_once(frame(spark, fold, [(Retyped("c", 1.5), 3)], removed), "named/2", 0, {})
    found = DeltaTable(begun.path).to_pyarrow_table().to_pylist()
    assert Counter((row["key"], row["total"]) for row in found) == Counter([("b", 0.5), ("c", 1.5)])
    assert now.metadata().partition_columns == (["emitted_date"] if mode == "append" else [])
