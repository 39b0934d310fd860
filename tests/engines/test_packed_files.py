"""Workers that read bronze's files themselves pack what Spark's scan would have given them."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import cycle, islice, pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.arrow_values import event_schema
from include.fold.definition import KeyedFold
from include.fold.keys import bucket_ids, buckets_of
from include.lake.columns import arrow_type
from include.lake.errors import LakeError
from include.lake.table import stage
from include.streams import device_signals, service_health, user_counts
from spark_jobs.engines import packed_files
from spark_jobs.engines.packed_files import FilePart, pack_files, read_part
from spark_jobs.engines.packing import Admission, admitted_rows, bucket_of, from_stream, packed_rows
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit
from tests.engines.live_lakes import COUNTED, COUNTS, START_US, expected_rows, local_run, table_rows

IDS = bucket_ids(8, 2)
INSTANT = pa.timestamp("us", tz="UTC")
SECOND_US = 1_000_000
FOLDS = {
    "user_counts": user_counts.FOLD,
    "device_signals": device_signals.FOLD,
    "by_ingestion": service_health.define(stale_after=timedelta(minutes=5), time="processing"),
}
ADMISSIONS = [
    Admission(),
    Admission(late_after_us=5 * SECOND_US),
    Admission(late_after_us=5 * SECOND_US, since_us=START_US),
]


def rows_of(fold, rng: np.random.Generator, size: int) -> pa.Table:
    """Rows of bronze at random: late and heartbeats, a first commit's, keys and values without any."""

    def instants(null: float = 0.0) -> pa.Array:
        micros = START_US + rng.integers(-20, 20, size) * SECOND_US + rng.integers(-1, 2, size)
        return pa.array(micros, pa.int64(), mask=rng.random(size) < null).cast(INSTANT)

    def values(kind: str) -> pa.Array:
        drawn = pa.array(rng.integers(0, 40, size), mask=rng.random(size) < 0.1)
        return drawn.cast({"bigint": pa.int64(), "double": pa.float64()}.get(kind, pa.string()))

    columns = {c.name: values(c.kind) for c in fold.event_columns if not c.name.endswith("_us")}
    instant_columns = {"event_time": instants(), "ingested_at": instants()}
    marks = {"watermark_before": instants(null=0.2), "watermark_after": instants()}
    is_heartbeat = pa.array(rng.random(size) < 0.1)
    return pa.table({**columns, **instant_columns, **marks, "is_heartbeat": is_heartbeat})


def test_no_bit_of_a_page_of_bronze_flips_unseen(tmp_path):
    fold = FOLDS["user_counts"]
    rows, random = rows_of(fold, np.random.default_rng(1), 200), Random(1)
    (staged,) = stage(str(tmp_path), rows, rows.schema)
    file = tmp_path / staged.path
    whole = file.read_bytes()
    part = FilePart(file.as_uri(), 0, len(whole))
    read = read_part(part, fold, (), "ingested_at")
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")  # before the footer
    for _ in range(300):
        at, bit = random.randrange(pages), random.randrange(8)
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        with suppress(LakeError):
            assert read_part(part, fold, (), "ingested_at").equals(read)


def by_bucket(packed: DataFrame) -> dict[int, Any]:
    return added_up(row.asDict() for row in packed.collect())


def packed_here(
    rows: pa.Table, fold: KeyedFold, admission: Admission = ADMISSIONS[0]
) -> dict[int, Any]:
    """Pack all rows as one worker that has them at once."""
    if not rows.num_rows:
        return {}
    admitted = admitted_rows(rows, fold, IDS, admission)
    batches = packed_rows(admitted, event_schema(fold))
    return added_up(row for batch in batches for row in batch.to_pylist())


def added_up(packed: Iterable[dict[str, Any]]) -> dict[int, Any]:
    """The events of each bucket, whatever their order, and its counts over all partitions."""
    buckets: dict[int, Any] = {}
    for row in packed:
        events, counts = buckets.setdefault(row["bucket"], (Counter(), []))
        events.update(tuple(e.values()) for e in from_stream(row["events"]).to_pylist())
        counts.append(list(row.values())[2:])
    return {
        bucket: (events, [f(c) for f, c in zip(HOW, zip(*counts, strict=True), strict=True)])
        for bucket, (events, counts) in buckets.items()
    }


HOW = (sum, sum, sum, min, max, max)


@pytest.mark.spark
@pytest.mark.parametrize("name", FOLDS)
def test_they_pack_the_rows_of_their_parts_of_files(spark: SparkSession, tmp_path, name):
    fold, rng = FOLDS[name], np.random.default_rng(3)
    folder = tmp_path / "a b%3A=c"  # as names of partitions are written
    folder.mkdir()
    tables = [rows_of(fold, rng, 500) for _ in range(3)]
    for number, rows in enumerate(tables):
        pq.write_table(rows, folder / f"{number}.parquet", row_group_size=60)
    tables.append(rows_of(fold, rng, 50))
    by_spark = spark.createDataFrame(tables[-1])
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        by_spark.coalesce(1).write.mode("append").parquet(str(folder))
        frame = spark.read.parquet(str(folder))
        spark.conf.set("spark.sql.files.maxPartitionBytes", "4000")  # parts of files
        for admission in ADMISSIONS:
            expected = packed_here(pa.concat_tables(tables), fold, admission)
            assert by_bucket(pack_files(frame, fold, IDS, admission)) == expected
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", before)
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.spark
def test_a_file_older_than_a_column_has_none_of_it(spark: SparkSession, tmp_path):
    fold, rng = device_signals.FOLD, np.random.default_rng(5)
    rows = rows_of(fold, rng, 100)
    late = next(
        c.name for c in fold.event_columns if c.name in rows.column_names and c.name != fold.key
    )
    pq.write_table(rows, tmp_path / "new.parquet")
    pq.write_table(rows.drop_columns([late]), tmp_path / "old.parquet")
    frame = spark.read.parquet(str(tmp_path))
    whole = pa.concat_tables([rows, rows.drop_columns([late])], promote_options="default")
    expected = packed_here(whole, fold)
    assert by_bucket(pack_files(frame, fold, IDS, Admission())) == expected


def decimal_of(scale: int, digits: int) -> Decimal:
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


KEYS = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "binary": st.binary(max_size=80),
    "date": st.dates(),
    "timestamp": st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001
    "decimal(18,4)": st.integers(-(10**18) + 1, 10**18 - 1).map(partial(decimal_of, 4)),
    "decimal(38,10)": st.integers(-(10**38) + 1, 10**38 - 1).map(partial(decimal_of, 10)),
}
PARTS = ("string", "bigint", "decimal(38,10)", "timestamp")


@pytest.mark.spark
def test_keys_have_the_bucket_that_spark_gives_them(spark: SparkSession):
    columns = {kind: pa.array(examples(values), arrow_type(kind)) for kind, values in KEYS.items()}
    together = [columns[kind] for kind in PARTS]
    columns["several"] = pa.StructArray.from_arrays(together, names=list("abcd"))
    # Of the same length, and each beside each other's null.
    frame = spark.createDataFrame(pa.table(columns)).coalesce(1)
    for name, keys in columns.items():
        places = frame.select(bucket_of(IDS, F.col(f"`{name}`"))).collect()
        assert buckets_of(keys, IDS).tolist() == [row[0] for row in places], name


def examples(values: st.SearchStrategy[Any]) -> list[Any]:
    found = [None]
    given(values)(lambda value: found.append(value))()
    return list(islice(cycle(found), 60))


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=8),
    st.lists(st.integers(0, 5_000), max_size=4),
)
def test_every_row_group_is_of_one_part(tmp_path_factory, sizes, cuts):
    path = tmp_path_factory.mktemp("parts") / "a.parquet"
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for size in sizes:
            writer.write_table(pa.table({"a": range(size), "b": ["x"] * size}, schema))
    metadata, end = pq.read_metadata(path), path.stat().st_size
    bounds = sorted({0, end, *(cut for cut in cuts if cut < end)})
    parts = [FilePart("", a, b - a) for a, b in pairwise(bounds)]
    read = [group for part in parts for group in packed_files._row_groups(metadata, part)]
    assert read == list(range(len(sizes)))


@pytest.mark.spark
def test_bronze_of_another_table_feature_is_drained(spark, counted_lake):
    """Bronze itself is appended to only; its owner may have turned this on."""
    lake = counted_lake
    spark.sql(
        f"ALTER TABLE delta.`{lake.bronze(COUNTS.source)}` "
        "SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
    )
    append_commit(lake, COUNTS.source, user_counts.FOLD, COUNTED[1])
    drain(SparkEngine(spark), lake, COUNTS)
    oracle = local_run(user_counts.FOLD, COUNTED[:2])
    assert table_rows(lake, COUNTS, user_counts.FOLD) == expected_rows(oracle, user_counts.FOLD)
