"""What the live engine keeps in a checkpoint, read with Spark's state reader."""

import atexit
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from include.fold.ddl import BUCKET_STATE, KEYS, state_rows_ddl
from include.fold.definition import KeyedFold
from include.lake.errors import LakeError
from include.lake.paths import files_of
from spark_jobs.engines.state_rows import StoredBucket, unpacked_states


def read_states(
    session: SparkSession, checkpoint: str, fold: KeyedFold, batch_id: int | None = None
) -> DataFrame:
    """The states after the last batch, or that one, as rows of `state_rows_ddl(fold)`."""
    buckets = _stored(session, checkpoint, BUCKET_STATE, batch_id)
    states = buckets.where("keys > 0").withColumnsRenamed({"keys": "count"})
    keys = _stored(session, checkpoint, KEYS, batch_id)
    return _unpacked(states.join(keys, "bucket", "left"), fold)


def read_waiting(session: SparkSession, checkpoint: str, batch_id: int | None = None) -> DataFrame:
    """`bucket, waiting, events` of each bucket that was ever touched, after the last batch or that
    one: how many events wait in it, and those as an Arrow stream (null for none)."""
    stored = _stored(session, checkpoint, BUCKET_STATE, batch_id)
    return stored.select("bucket", "waiting", "events")


# Of a path, what no URI has as it is.
ENCODED = re.compile(r"""[\s"#<>?`{}]""")


def _stored(
    session: SparkSession, checkpoint: str, variable: str, batch_id: int | None
) -> DataFrame:
    """A state variable's value of each bucket, by its fields, beside the bucket."""
    commits = fs.FileSelector("commits", allow_not_found=True)
    if not files_of(checkpoint).get_file_info(commits):
        raise LakeError(f"no batch of {checkpoint} has stored a state yet", code="nothing_there")
    # Starts what the state reader needs in a new session (SPARK-58973).
    _ = session.streams.active
    reader = session.read.format("statestore").option("stateVarName", variable)
    if batch_id is not None:
        reader = reader.option("batchId", batch_id)
    return reader.load(readable(checkpoint)).select("key.bucket", "value.*")


@cache
def readable(checkpoint: str) -> str:
    """The path by which Spark's state reader finds a local checkpoint, for as long as this process.

    It writes such letters as a URI has them, %20, and then looks for that very name (Spark 4.2).
    """
    if "://" in checkpoint or not ENCODED.search(checkpoint):
        return checkpoint
    folder = TemporaryDirectory(prefix="checkpoint-")
    atexit.register(folder.cleanup)
    link = Path(folder.name, "link")
    link.symlink_to(checkpoint)
    return str(link)


def _unpacked(buckets: DataFrame, fold: KeyedFold) -> DataFrame:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket, keys, *stored in zip(*(c.to_pylist() for c in batch), strict=True):
                table = unpacked_states(fold, keys, StoredBucket(*stored))
                of_bucket = pa.array([bucket] * table.num_rows, pa.int32())
                yield from table.add_column(0, "bucket", of_bucket).to_batches()

    columns = ("folded_until_us", "timer_ms", "count", "waiting", "states", "events")
    return buckets.select("bucket", "keys", *columns).mapInArrow(rows, state_rows_ddl(fold))
