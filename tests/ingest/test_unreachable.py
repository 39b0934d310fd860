"""What cannot be had just now is no damage: nothing is refused, struck off, or to be moved aside for it."""

import errno
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.ingest.ingest import ingest
from include.lake.paths import Lake
from include.settings import MIB
from include.stream.checkpoint import measure_checkpoint
from include.stream.manifest import savepoints_of
from tests.ingested import SIGNALS, bronze_of, quarantine_of
from tests.landed_files import START, Landing
from tests.open_files import no_more_files
from tests.stream.spark_checkpoint import SparkCheckpoint
from tests.unreachable import MEMORY_LEFT, no_more_memory, store_that_answers

ROWS = MEMORY_LEFT // 8 + MIB  # of 8 bytes a column


def same_rows(count: int) -> bytes:
    """Small while it is packed."""
    times = pa.array([START], pa.timestamp("us", "UTC")).take(pa.array([0] * count))
    ones = pa.repeat(1, count)
    sink = io.BytesIO()
    pq.write_table(pa.table({"device_id": ones, "timestamp": times, "value": ones}), sink)
    return sink.getvalue()


@pytest.mark.slow
def test_a_good_file_is_not_refused_for_want_of_memory(lake: Lake):
    landing = Landing(lake)
    landing.add("a.parquet", same_rows(2))
    ingest(lake, SIGNALS)
    path = landing.add("b.parquet", same_rows(ROWS))
    with no_more_memory(), pytest.raises(MemoryError):
        ingest(lake, SIGNALS)
    assert quarantine_of(lake) == []
    path.write_bytes(same_rows(3))  # the rows of the other take minutes
    ingest(lake, SIGNALS)
    assert (len(bronze_of(lake)), quarantine_of(lake)) == (5, [])


def test_a_checkpoint_whose_files_cannot_be_opened_is_not_measured(lake: Lake, monkeypatch):
    made = SparkCheckpoint(Path(lake.root, "checkpoints/counts/1"), 2)
    made.batch(snapshot=True)
    read = Lake.read
    for kind in ("offsets/0", "v2/0", ".zip"):

        def read_but(lake: Lake, path: str, kind: str = kind) -> bytes:
            if path.endswith(kind):
                raise OSError(errno.EMFILE, "Too many open files")
            return read(lake, path)

        monkeypatch.setattr(Lake, "read", read_but)
        with pytest.raises(OSError, match="Too many open files"):
            measure_checkpoint(lake, "counts", 1)
    monkeypatch.undo()
    with no_more_files(), pytest.raises(OSError, match="Too many open files"):
        measure_checkpoint(lake, "counts", 1)
    assert measure_checkpoint(lake, "counts", 1).verdict == "ok"


@pytest.mark.parametrize("status", [403, 503])
def test_savepoints_in_a_store_that_does_not_give_them_are_not_lost(status: int):
    with store_that_answers(status), pytest.raises(OSError, match="AWS Error"):
        savepoints_of(Lake("s3a://bucket/lake"), "counts")
