"""What a batch of a live query folded: as a frame of Spark, or, if it is small, fetched as Arrow.

Fetched, its rows are written by delta-rs: no second job, no cache and none of Spark's writers,
each of which costs seconds in a JVM that has just begun.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.fold.ddl import DEAD_LETTERS_DDL, output_ddl
from include.fold.definition import KeyedFold
from include.fold.schemas import DEAD_LETTERS, output_schema
from include.settings import MIB
from spark_jobs.engines.engine import FoldedBatch
from spark_jobs.engines.live_batch import SUMMED
from spark_jobs.engines.packing import from_stream, unpack

# Of what a batch may send to the driver, outputs and dead letters each.
FETCHED_BYTES = 64 * MIB
STREAMS = ("outputs", "dead_letters")  # columns with an Arrow stream in each row


def counts_of(folded: pa.Table) -> dict[str, Any]:
    """What rows of FOLDED_DDL come to, whatever is in place of their streams."""
    return {name: pc.sum(folded[name]).as_py() or 0 for name in SUMMED} | {
        "late_first_us": pc.min(folded["late_first_us"]).as_py(),
        "late_last_us": pc.max(folded["late_last_us"]).as_py(),
        "buckets_touched": folded.num_rows,
        "watermark_us": pc.max(folded["watermark_us"]).as_py(),
        "buckets_with_dead_letters": pc.count(folded["dead_letters"]).as_py(),
        "rows_in_most": pc.max(folded["rows_in"]).as_py(),
    }


def left_on_spark(folded: DataFrame, fold: KeyedFold) -> FoldedBatch:
    """A batch's frame (FOLDED_DDL of bucket_processor.py), persisted: what is asked of it runs no fold."""
    is_there = {name: F.when(F.col(name).isNotNull(), F.lit(True)) for name in STREAMS}
    counts = counts_of(folded.withColumns(is_there).toArrow())
    emitted = unpack(folded, "outputs", output_ddl(fold))
    return FoldedBatch(
        counts, emitted, dead_letters=unpack(folded, "dead_letters", DEAD_LETTERS_DDL)
    )


def fetch(folded: DataFrame, fold: KeyedFold, buckets: int) -> FoldedBatch | None:
    """Run the batch and fetch it; None when a bucket of it has more than its share.

    None of it is kept then: it must be run once more, which changes nothing (as when a task of
    Spark is repeated, each state is made anew from the batch before).
    """
    most = FETCHED_BYTES // buckets
    shortened = {name: F.when(_size(name) <= most, F.col(name)) for name in STREAMS}
    sizes = {f"{name}_bytes": _size(name) for name in STREAMS}
    table = folded.select(
        *(shortened.get(name, F.col(name)).alias(name) for name in folded.columns),
        *(size.alias(name) for name, size in sizes.items()),
    ).toArrow()
    if any((pc.max(table[name]).as_py() or 0) > most for name in sizes):
        return None
    emitted = _rows_in(table["outputs"], output_schema(fold))
    return FoldedBatch(
        counts_of(table), emitted, dead_letters=_rows_in(table["dead_letters"], DEAD_LETTERS)
    )


def _rows_in(streams: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    tables = map(from_stream, streams.drop_null().to_pylist())
    return pa.concat_tables([schema.empty_table(), *tables])


def _size(column: str) -> Any:
    return F.octet_length(F.col(column))
