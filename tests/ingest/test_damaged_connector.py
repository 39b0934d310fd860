"""Somebody else's Delta table with a damaged file: that is refused as a whole, and gives no row that is none.

A damaged commit of its log stops the source: nobody knows which rows it has added.
"""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from include import connectors
from include.ingest.ingest import ingest
from include.ingest.parse_files import Counts
from include.lake.paths import Lake
from tests.ingested import SIGNALS, bronze_of, quarantine_of
from tests.landed_files import START
from tests.refused import refused
from tests.theirs import ACCEPT, Theirs, accept_lost, values_of

pytestmark = pytest.mark.slow
NOTE = "note"  # a column that is no field of the source


def table(uri: str, **named: object) -> None:
    rows = {
        "device_id": [0, 1],
        "timestamp": pa.array([START, START], pa.timestamp("us", "UTC")),
        "value": [0, 1],
        NOTE: ["a", "b"],
    }
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(uri, pa.table(rows), configuration=feed, **named)  # type: ignore[call-overload]


def damage(path: Path) -> None:
    """All bytes of the column NOTE are others."""
    column = pq.read_metadata(path).row_group(0).column(pq.read_schema(path).get_field_index(NOTE))
    first = column.dictionary_page_offset or column.data_page_offset
    content, behind = path.read_bytes(), first + column.total_compressed_size
    changed = bytes(byte ^ 0x7F for byte in content[first:behind])
    path.write_bytes(content[:first] + changed + content[behind:])


@pytest.mark.parametrize("rescue", [True, False])
def test_a_damaged_file_of_a_partition_gives_no_row_without_its_fields(
    lake: Lake, tmp_path: Path, rescue: bool
):
    """One that is read; and what is damaged in the other has no field."""
    uri = str(tmp_path / "theirs")
    table(uri, partition_by=["value"])
    (zero,) = Path(uri, "value=0").rglob("*.parquet")
    damage(zero)
    ingest(lake, replace(SIGNALS, connector=connectors.DeltaTable(uri=uri), rescue=rescue))
    assert [row["value"] for row in bronze_of(lake)] == ([1] if rescue else [0, 1])
    reasons = [row["reason_code"] for row in quarantine_of(lake)]
    assert reasons == ["unreadable_file"] * rescue


@pytest.mark.parametrize("version", [1, 2, 4])
@pytest.mark.parametrize("text", [b"", b'{"add', b"\0\0", b"\xff", b"7\n"])
def test_a_damaged_commit_behind_a_checkpoint_stops_until_it_is_skipped(
    lake: Lake, tmp_path: Path, version: int, text: bytes
):
    """Others read the checkpoint, and have its rows."""
    theirs = Theirs(tmp_path)
    theirs.append(1)
    ingest(lake, theirs.source())
    for _ in range(4):
        theirs.append(1)
    DeltaTable(theirs.uri).create_checkpoint()
    theirs.commit_file(version).write_bytes(text)
    # Until the checkpoint, where nothing leads behind it.
    last = max(version, 3) if text else version
    for _ in range(2):
        with refused("lost_input", subject="signals", command=ACCEPT):
            ingest(lake, theirs.source())
    assert values_of(lake) == [*range(version)]  # what came before it
    assert accept_lost(lake, theirs.source()).lost == last - version + 1
    ingest(lake, theirs.source())
    assert values_of(lake) == [*range(version), *range(last + 1, 5)]
    assert ingest(lake, theirs.source()) == Counts()
