"""The product tables that delta-rs writes: each batch once, its properties kept."""

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.fold.arrow_values import output_schema
from include.fold.definition import Definition, flat_map_groups_with_state
from include.fold.product_table import TableSchemaError, ensure_product
from include.lake.delta_log import read_actions
from include.lake.paths import Lake
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


def rows_in(table: LocalProduct) -> Counter[tuple[str, int, int]]:
    rows = DeltaTable(table.path).to_pyarrow_table().to_pylist()
    return Counter((r["userId"], r["order"], micros_of(r["emitted_at"]) - START_US) for r in rows)


def version(table: LocalProduct) -> int:
    return DeltaTable(table.path).version()


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


def test_a_table_whose_change_feed_others_have_turned_off_gets_it_back_in_one_commit(lake):
    table = DeltaTable(table_in(lake, "append").path)
    table.alter.set_table_properties({FEED: "false"})
    for _ in range(2):
        found = ensure_product(lake.table("tried"), definition("append"))
        assert found.metadata().configuration[FEED] == "true"
        assert found.version() == table.version() + 1


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
