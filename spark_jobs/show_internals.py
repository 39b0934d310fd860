"""Show what a stateful operator is and does, on three small batches: docs/internals.md.

    ./stateful demo-internals

The folder that it is given is left with two checkpoints of the plain operator and one of ours.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from include.lake.paths import open_lake
from include.text_table import printable
from spark_jobs.internals import parts
from spark_jobs.internals.debug_log import (
    LogLine,
    batch_lines,
    of_loggers,
    of_partition,
    read_log,
    readable_lines,
)
from spark_jobs.internals.queries import (
    HDFS,
    ROCKSDB,
    Ran,
    live_count,
    plain_count,
    run_query,
)
from spark_jobs.internals.signals import BATCHES, expected_counts, write_bronze
from spark_jobs.internals.text import heading, readable_plan, table
from spark_jobs.job import exit_with_main, spark_session

# The batch to look into: its late signals, new data and a timeout come together.
BATCH = 2


def run_demo(spark: SparkSession, folder: str) -> Iterator[str]:
    """The demo's parts, in their order."""
    bronze = f"{folder}/bronze/signals"
    write_bronze(bronze)
    yield show_input()
    hdfs = run_query(spark, bronze, folder, "plain_hdfs", HDFS, plain_count)
    rocksdb = run_query(spark, bronze, folder, "plain_rocksdb", ROCKSDB, plain_count)
    live = run_query(spark, bronze, folder, "device_signals", ROCKSDB, live_count)
    yield show_plans(rocksdb, live, folder)
    yield show_states(spark, rocksdb, live)
    yield show_progress(rocksdb, live)
    yield show_log(read_log(f"{folder}/debug.log"), folder)
    yield show_providers(hdfs, rocksdb)


def show_input() -> str:
    rows = [
        (number, " ".join(f"{device}@{at:%H:%M}" for device, at in batch))
        for number, batch in enumerate(BATCHES)
    ]
    explanation = (
        "Each batch is one commit of bronze; the watermark is 10 minutes behind the newest event. "
        "The plain operator gives a device up after 15 minutes of silence. In batch 2, the signal "
        "of 11:50 is late for both queries, that of 12:15 for ours only."
    )
    return heading("Input: signals as device@time", explanation) + table(("batch", "signals"), rows)


def show_plans(plain: Ran, live: Ran, folder: str) -> str:
    explanation = (
        "Below the operator: the watermark, the shuffle by the grouping key that stateful operators "
        "ask for, and the sort that brings a key's rows together. In its line: where its state is "
        "(state info), the timeout, and the two watermarks, for late rows and for timeouts."
    )
    return (
        heading(f"1. The executed plan of batch {BATCH}", explanation)
        + f"Plain operator (applyInPandasWithState):\n{readable_plan(plain.plans[BATCH], folder)}"
        + f"Ours (transformWithState):\n{readable_plan(live.plans[BATCH], folder)}"
    )


def show_states(spark: SparkSession, plain: Ran, live: Ran) -> str:
    explanation = (
        "The plain operator has a row for each key: the state, and its timeout. "
        "Ours has a row for each bucket and variable, with the keys of the bucket in arrays."
    )
    return (
        heading("2. The state, by Spark's state-metadata and statestore sources", explanation)
        + f"Plain operator, state-metadata:\n{parts.metadata_table(spark, plain)}"
        + f"statestore, batchId=1, before any timeout:\n{parts.plain_states(spark, plain, 1)}"
        + f"statestore, after the last batch:\n{parts.plain_states(spark, plain, max(plain.outputs))}"
        + f"Ours, state-metadata:\n{parts.metadata_table(spark, live)}"
        + f"statestore, after the last batch, {parts.live_states(spark, live)}"
    )


def show_progress(plain: Ran, live: Ran) -> str:
    explanation = (
        "Rows are state rows, but for 'rows in' and 'dropped', which are input. Batch 3 has no data: "
        "it runs because the watermark moved in batch 2."
    )
    return (
        heading("3. Batch by batch, from the operators' progress", explanation)
        + f"Plain operator:\n{parts.progress_table(plain.progress)}"
        + f"Ours:\n{parts.progress_table(live.progress)}"
        + f"Ours, from the rows that the buckets emit:\n{parts.folded_table(live)}"
    )


def show_log(log: Sequence[LogLine], folder: str) -> str:
    explanation = (
        "include/log4j2-internals.properties switches it on. The operators themselves log nothing in "
        "Spark 4.2.0; their Python runners, state stores and the batch loop do. Without "
        "minor steps, and of long messages the beginning."
    )
    plain = of_partition(batch_lines(log, "plain_rocksdb", BATCH), 1)
    hdfs = of_partition(batch_lines(log, "plain_hdfs", BATCH), 1)
    live = batch_lines(log, "device_signals", BATCH)
    return (
        heading(f"4. The debug log of batch {BATCH}", explanation)
        + f"Plain operator on RocksDB, partition 1:\n{readable_lines(plain, folder)}"
        + "Plain operator on the HDFS-backed store, partition 1, the store only:\n"
        + readable_lines(of_loggers(hdfs, HDFS), folder)
        + "Ours, the Python side of both partitions:\n"
        + readable_lines(of_loggers(live, "TransformWithStateInPySpark"), folder)
    )


def show_providers(hdfs: Ran, rocksdb: Ran) -> str:
    explanation = (
        "Spark's late rows are left out of the expected counts as its operator does it. Files are "
        "named by version, which is the batch plus one."
    )
    return (
        heading("5. The same count on two state store providers", explanation)
        + parts.counts_table(expected_counts(commits_behind=2), hdfs, rocksdb)
        + f"Equal in every batch. The state files:\n{parts.files_table(hdfs, rocksdb)}"
    )


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lake", required=True, help="an empty folder for the demo's lake")
    return parser.parse_args(argv)


def main() -> None:
    lake = open_lake(parse_args().lake)
    for part in run_demo(spark_session("show_internals", lake), lake.root):
        sys.stdout.write(printable(part))
        sys.stdout.flush()


if __name__ == "__main__":
    exit_with_main(main)
