"""Each engine goes on with what the other wrote: tables, transactions, savepoints, results."""

import json
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.fold.arrow_values import output_schema
from include.fold.definition import output_ddl
from include.fold.product_table import ensure_product
from include.lake.table import RECORD
from include.registry import stream_named
from include.stream.manifest import savepoints_of
from include.stream_definition import load_definition
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.write_savepoint import write_savepoint
from tests.simulator.local_engine import LocalProduct
from tests.simulator.steps import land, run
from tests.written_savepoint import MANIFEST

pytestmark = pytest.mark.spark
START_US = 1_750_000_000_000_000
SHIPPED = ("device_signals", "user_counts")


def batch_of(fold, rows, removed=()):
    """(key, number, emitted at) as output rows of Arrow."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[2] = [START_US + at_us for at_us in columns[2]]
    if fold.output_mode == "update":
        columns.append([key in removed for key in columns[0]])
    return pa.table(columns, schema=output_schema(fold))


def rows_in(path):
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return Counter((*list(r.values())[:2], micros_of(r["emitted_at"]) - START_US) for r in rows)


class Pair:
    """A stream's table in two hands."""

    def __init__(self, spark, lake, name):
        stream = stream_named(name)
        definition = load_definition(stream)
        self.fold = definition.fold
        self.spark = spark
        self.hands = {
            "spark": SparkEngine(spark).product_table(lake, name, definition),
            "arrow": LocalProduct(lake, name, definition),
        }
        self.path = lake.table(name)
        ensure_product(self.path, definition)

    def rows(self, hand, batch):
        if hand == "arrow":
            return batch
        return self.spark.createDataFrame(batch.to_pandas(), output_ddl(self.fold))

    def write(self, hand, batch_id, rows, removed=()):
        batch = batch_of(self.fold, rows, removed)
        table = self.hands[hand]
        table.write_once(self.rows(hand, batch), "tried/1", batch_id, {"by": f"{hand} {batch_id}"})


def keys(name):
    return ["a", "b", "c"] if name == "user_counts" else [1, 2, 3]


@pytest.mark.parametrize("first", ["spark", pytest.param("arrow", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", SHIPPED)
def test_each_goes_on_with_the_table_that_the_other_began(spark, lake, name, first):
    pair = Pair(spark, lake, name)
    second = {"spark": "arrow", "arrow": "spark"}[first]
    a, b, c = keys(name)
    pair.write(first, 0, [(a, 1, 0), (b, 1, 0)])
    pair.write(second, 0, [(c, 9, 0)])  # written already
    pair.write(second, 1, [(a, 2, 5), (c, 1, 5)], removed=())
    pair.write(first, 1, [(c, 9, 0)])
    pair.write(first, 2, [(b, 2, 9)], removed=(b,))
    every = Counter([(a, 1, 0), (b, 1, 0), (a, 2, 5), (c, 1, 5), (b, 2, 9)])
    latest = Counter([(a, 2, 5), (c, 1, 5)])
    assert rows_in(pair.path) == (every if name == "device_signals" else latest)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{pair.path}`").collect()
    told = [row["userMetadata"] for row in history if row["userMetadata"]]
    made_by = [json.loads(text)[RECORD]["by"] for text in told]
    assert made_by == [f"{first} 2", f"{second} 1", f"{first} 0"]
    if name == "user_counts":
        feed = spark.read.option("readChangeFeed", "true").option("startingVersion", "1")
        changes = feed.format("delta").load(pair.path).groupBy("_commit_version", "_change_type")
        assert {tuple(row) for row in changes.count().collect()} == {
            (1, "insert", 2),
            (2, "insert", 1),
            (2, "update_preimage", 1),
            (2, "update_postimage", 1),
            (3, "delete", 1),
        }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("spark", "arrow", marks=pytest.mark.e2e),
        pytest.param("arrow", "spark", marks=pytest.mark.full),
    ],
)
def test_both_replace_a_range_alike(spark, lake, first, second):
    pair = Pair(spark, lake, "device_signals")
    day = 24 * 3_600_000_000
    pair.write("spark", 0, [(1, n, n * day // 3 + 1) for n in range(9)])
    pair.write("arrow", 1, [(2, n, n * day // 3 + 1) for n in range(9)])
    new = batch_of(pair.fold, [(1, 4, 4 * day // 3 + 1), (3, 1, day + 2)])
    bounds = (START_US + day + 1, START_US + 2 * day + 1)
    before = rows_in(pair.path)
    assert pair.hands[first].replace(pair.rows(first, new), {}, *bounds) == (6, 2)
    version = DeltaTable(pair.path).version()
    # Spark's own reader of the feed, whoever wrote it.
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", version)
    changes = (
        feed.format("delta").load(pair.path).selectExpr("*", "unix_micros(emitted_at) AS at_us")
    )
    for row in changes.collect():
        change_of_row = {"insert": 1, "delete": -1}[row["_change_type"]]
        before[(row[0], row[1], row["at_us"] - START_US)] += change_of_row
    assert +before == rows_in(pair.path)
    assert pair.hands[second].replace(pair.rows(second, new), {}, *bounds) == (2, 2)
    assert +before == rows_in(pair.path)


def rows_of(rows):
    if isinstance(rows, pa.Table):
        return rows.to_pylist()
    return [row.asDict(recursive=True) for row in rows.collect()]


@pytest.mark.parametrize("keys", [0, 2])
def test_each_engine_reads_the_savepoint_of_the_other(spark, world, keys):
    land(world, [("a", 0, 1), ("b", 3_600_000_000, 1), ("c", 3_600_000_000, 1)])
    run(world, "counts")
    (made,) = savepoints_of(world.lake, world.streams["counts"].name)
    local, remote = world.engine, SparkEngine(spark)
    fold = load_definition(world.streams["counts"]).fold
    assert len(rows_of(remote.savepoint_states(world.lake, made))) == 2
    states = remote.savepoint_states(world.lake, made).limit(keys)
    known = {name: value for name, value in vars(made).items() if name in MANIFEST}
    other = write_savepoint(remote, world.lake, states, fold, made.until_us + 1, **known)
    (read_here, read_there) = (
        sorted(
            ((row["key"], row["state"], row["changed_at_us"]) for row in rows_of(states)), key=repr
        )
        for states in (engine.savepoint_states(world.lake, other) for engine in (local, remote))
    )
    assert read_here == read_there
    assert len(read_here) == other.keys == keys
