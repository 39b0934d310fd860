"""The product tables that delta-rs writes: each batch once, ranges replaced, nothing for nothing."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import micros_of
from include.fold.arrow_values import output_schema
from include.fold.definition import Definition, flat_map_groups_with_state
from include.fold.product_table import TableSchemaError, ensure_product
from include.lake.delta_log import read_actions
from include.lake.paths import Lake
from include.lake.table import record_of
from tests.simulator.local_engine import LocalProduct

FEED = "delta.enableChangeDataFeed"
DAY_US = 24 * 3_600_000_000
START_US = 20_000 * DAY_US


class Event(NamedTuple):
    userId: str  # capitals, which SQL would fold
    event_time_us: int


class Total(NamedTuple):
    total: int


class Row(NamedTuple):
    userId: str
    order: int  # a word of SQL
    share: float | None
    parts: tuple[int, ...]


def row_of(key: str, total: Total) -> Row:
    return Row(key, total.total, float("nan"), (total.total,))


def definition(mode: str, output: type = Row) -> Definition:
    fold = flat_map_groups_with_state(
        lambda key, events, state: iter(()),
        key="userId",
        event=Event,
        state=Total,
        output=output,
        output_mode=mode,
        project=row_of if mode == "update" else None,
    )
    return Definition(fold, "What users did", dict.fromkeys(output._fields, "A column"))


def table_in(lake: Lake, mode: str) -> LocalProduct:
    ensure_product(lake.table("tried"), definition(mode))
    return LocalProduct(lake, "tried", definition(mode))


def emitted(rows: list[tuple[str, int, int]], mode: str = "append", removed=()) -> pa.Table:
    """(user, order, emitted at) as an engine hands them over."""
    schema = output_schema(definition(mode).fold)
    columns = [
        [user for user, _, _ in rows],
        [order for _, order, _ in rows],
        [float("nan")] * len(rows),
        [[order, None] for _, order, _ in rows],
        [START_US + at_us for _, _, at_us in rows],
    ]
    if mode == "update":
        columns.append([user in removed for user, _, _ in rows])
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def rows_in(table: LocalProduct, at: int | None = None) -> Counter[tuple[str, int, int]]:
    rows = DeltaTable(table.path, version=at).to_pyarrow_table().to_pylist()
    return Counter(map(told, rows))


def told(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["userId"], row["order"], micros_of(row["emitted_at"]) - START_US


def version(table: LocalProduct) -> int:
    return DeltaTable(table.path).version()


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_batch_is_written_once_whoever_repeats_it(lake, mode):
    table = table_in(lake, mode)
    table.write_once(emitted([("a", 1, 0)], mode), "tried/1", 3, {"by": "first"})
    table.write_once(emitted([("b", 1, 0)], mode), "tried/1", 3, {"by": "again"})
    table.write_once(emitted([("c", 1, 0)], mode), "tried/1", 2, {"by": "older"})
    assert rows_in(table) == Counter([("a", 1, 0)])
    table.write_once(emitted([("d", 1, 0)], mode), "tried/2", 0, {"by": "next"})
    assert rows_in(table) == Counter([("a", 1, 0), ("d", 1, 0)])
    records = [record_of(read_actions(lake, table.path, n)) for n in range(version(table) + 1)]
    assert [record and record["by"] for record in records] == [None, "first", "next"]


def test_an_update_table_has_the_latest_row_of_each_key(lake):
    table = table_in(lake, "update")
    table.write_once(emitted([("a", 1, 0), ("b", 1, 0)], "update"), "x", 0, {})
    rows = emitted([("a", 2, 5), ("b", 2, 5), ("c", 1, 5), ("d", 1, 5)], "update", ("b", "d"))
    table.write_once(rows, "x", 1, {})
    assert rows_in(table) == Counter([("a", 2, 5), ("c", 1, 5)])
    changes = pa.table(DeltaTable(table.path).load_cdf(starting_version=2)).to_pylist()
    assert Counter(c["_change_type"] for c in changes) == Counter(
        ["update_preimage", "update_postimage", "delete", "insert"]
    )


# At the edges of days and of milliseconds, which Delta's statistics are cut to.
INSTANTS = st.builds(
    lambda day, us: day * DAY_US + us, st.integers(-1, 2), st.sampled_from([-1, 0, 1, 999, 1000])
)
ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), INSTANTS), max_size=8)


@given(
    batches=st.lists(ROWS, min_size=1, max_size=3),
    corrected=ROWS,
    later=ROWS,
    bounds=st.tuples(st.none() | INSTANTS, st.none() | INSTANTS),
    start=st.integers(0, 3),
)
def test_who_follows_the_change_feed_ends_with_the_table_behind_a_restate(
    tmp_path_factory, batches, corrected, later, bounds, start
):
    """From whatever version on it begins."""
    table = table_in(Lake(str(tmp_path_factory.mktemp("lake"))), "append")
    for number, rows in enumerate(batches):
        table.write_once(emitted(rows), "x", number, {})
    of_range = [None if us is None else START_US + us for us in bounds]
    table.replace(emitted(corrected), {}, *of_range)
    table.write_once(emitted(later), "x", len(batches), {})
    begun = min(start, version(table))
    assert changed_by_feed(table, begun) == rows_in(table)


def changed_by_feed(table: LocalProduct, begun: int) -> Counter[tuple[str, int, int]]:
    """The rows at version `begun`, changed as the feed of the versions behind it says."""
    followed = rows_in(table, begun)
    if begun < version(table):
        feed = DeltaTable(table.path).load_cdf(starting_version=begun + 1, allow_out_of_range=True)
        for row in pa.table(feed).to_pylist():
            followed[told(row)] += {"insert": 1, "delete": -1}[row["_change_type"]]
    return +followed


def test_an_append_table_whose_change_feed_others_have_turned_off_gets_it_back(lake):
    table = table_in(lake, "append")
    DeltaTable(table.path).alter.set_table_properties({FEED: "false"})
    table.write_once(emitted([("a", 1, 0)]), "x", 0, {})
    ensure_product(table.path, definition("append"))
    begun = version(table)
    ensure_product(table.path, definition("append"))
    assert version(table) == begun
    table.replace(emitted([("b", 1, 0)]), {})
    assert changed_by_feed(table, begun) == Counter([("b", 1, 0)])


class Longer(NamedTuple):
    userId: str
    order: int
    more: int | None
    share: float | None
    parts: tuple[int, ...]


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_rebuild_adds_columns_to_the_table_that_is_there(lake, mode):
    first = table_in(lake, mode)
    first.write_once(emitted([("a", 1, 0), ("b", 1, 1)], mode), "x", 0, {})
    begun, longer = DeltaTable(first.path), definition(mode, Longer)
    with pytest.raises(TableSchemaError):
        ensure_product(first.path, longer)
    table = LocalProduct(lake, "tried", longer, is_rebuilt=True)
    columns = output_schema(longer.fold)
    rows = emitted([("a", 1, 0), ("b", 2, 1)], mode)
    rows = rows.append_column(columns.field("more"), pa.array([7, None], pa.int64()))
    table.replace(rows.select(columns.names), {})
    for _ in range(2):  # batches go on, by whoever opens it
        table = LocalProduct(lake, "tried", longer)
        table.write_once(rows.select(columns.names).slice(0, 1), "x", 1, {})
    assert DeltaTable(table.path).metadata().id == begun.metadata().id
    values = [row["more"] for row in DeltaTable(table.path).to_pyarrow_table().to_pylist()]
    assert Counter(values) == Counter([7, None] if mode == "update" else [7, 7, None])
    feed = pa.table(DeltaTable(table.path).load_cdf(starting_version=begun.version())).to_pylist()
    assert {change["_change_type"] for change in feed} >= {"insert", "delete"}


def test_a_table_that_others_made_append_only_is_refused_until_it_is_not(lake):
    table = DeltaTable(table_in(lake, "append").path)
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(TableSchemaError):
        ensure_product(lake.table("tried"), definition("append"))
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    ensure_product(lake.table("tried"), definition("append"))


def test_the_record_of_a_batch_says_when_or_spark_takes_it_for_expired(lake):
    table = table_in(lake, "append")
    table.write_once(emitted([("a", 1, 0)]), "x", 0, {})
    actions = read_actions(lake, table.path, version(table))
    (record,) = [action["txn"] for action in actions if "txn" in action]
    assert record["lastUpdated"] > 1_600_000_000_000
