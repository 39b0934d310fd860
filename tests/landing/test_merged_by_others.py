"""A Delta table with a change data feed that others MERGE into."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from include import origins
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.settings import Field, Source
from tests.ingested import bronze_of
from tests.landed_files import START
from tests.refused import refused

pytestmark = pytest.mark.slow


def source_of(uri: str, on_change: str) -> Source:
    return Source(
        name="signals",
        time_field="at",
        comment="Signals",
        origin=origins.DeltaTable(uri=uri, on_change=on_change),  # type: ignore[arg-type]
        fields=(
            Field(name="value", type="bigint", comment="Key"),
            Field(name="note", type="string", required=False, comment="Said"),
            Field(name="tags", type="array<string>", required=False, comment="Said, too"),
        ),
    )


def rows_of(*numbers: int) -> pa.Table:
    return pa.table(
        {
            "value": pa.array(numbers, pa.int64()),
            "at": pa.array(
                [START + timedelta(seconds=n) for n in numbers], pa.timestamp("us", "UTC")
            ),
            "note": [f"n{n}" if n % 2 else None for n in numbers],
            "tags": [[f"t{n}"] for n in numbers],
        }
    )


def merge(uri: str, rows: pa.Table, updates: bool) -> None:
    merger = DeltaTable(uri).merge(rows, "t.value = s.value", source_alias="s", target_alias="t")
    if updates:
        merger = merger.when_matched_update_all()
    merger.when_not_matched_insert_all().execute()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "theirs")
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(uri, rows_of(0, 1), configuration=feed)
    return uri


def test_rows_that_are_new_in_a_version_that_is_passed_over_are_told_of(lake: Lake, uri: str):
    source = source_of(uri, "ignore")
    ingest(lake, source)
    merge(uri, rows_of(1, 2), updates=True)
    ingest(lake, source)
    assert sorted(row["value"] for row in bronze_of(lake)) == [0, 1]
    (found,) = read_ops(lake, "findings").to_pylist()
    assert (found["finding"], found["count"]) == ("versions_ignored", 1)


@pytest.mark.parametrize("on_change", ["stop", "ignore"])
def test_a_merge_that_only_inserts_is_an_append(lake: Lake, uri: str, on_change: str):
    source = source_of(uri, on_change)
    ingest(lake, source)
    merge(uri, rows_of(1, 2), updates=False)
    ingest(lake, source)
    assert sorted(row["value"] for row in bronze_of(lake)) == [0, 1, 2]
    assert not read_ops(lake, "findings").num_rows


@pytest.mark.parametrize("on_change", ["stop", "ignore"])
def test_a_merge_that_only_deletes_is_none(lake: Lake, uri: str, on_change: str):
    source = source_of(uri, on_change)
    ingest(lake, source)
    merger = DeltaTable(uri).merge(
        rows_of(1), "t.value = s.value", source_alias="s", target_alias="t"
    )
    merger.when_matched_delete().execute()
    if on_change == "stop":
        with refused("changed_input", subject="on_change"):
            ingest(lake, source)
    else:
        ingest(lake, source)
        assert read_ops(lake, "findings")["finding"].to_pylist() == ["versions_ignored"]
