"""A Delta table whose columns had other names in its files for a while: what was written then is not read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.lake.paths import Lake
from include.landing.delta_commits import MAPPING
from include.landing.ingest import ingest
from tests.ingested import bronze_of
from tests.landed_files import START
from tests.refused import refused
from tests.theirs import Theirs

pytestmark = pytest.mark.slow


class Mapped(Theirs):
    """Commits as Spark writes them when columns are mapped by name, and are no longer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.append(1)
        lines = self.commit_file(0).read_text().splitlines()
        (self._metadata,) = (a["metaData"] for a in map(json.loads, lines) if "metaData" in a)

    def commit(self, version: int, *actions: dict[str, Any]) -> None:
        self.commit_file(version).write_text(
            "".join(f"{json.dumps(action)}\n" for action in actions)
        )

    def map_columns(self, version: int, mode: str) -> None:
        fields = json.loads(self._metadata["schemaString"])["fields"]
        for number, field in enumerate(fields, 1):
            physical = {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": _physical(field["name"]),
            }
            field["metadata"] = {} if mode == "none" else physical
        schema = json.dumps({"type": "struct", "fields": fields})
        configuration = {MAPPING: mode, "delta.columnMapping.maxColumnId": str(len(fields))}
        told = {**self._metadata, "schemaString": schema, "configuration": configuration}
        protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
        self.commit(version, protocol, {"metaData": told})

    def write_mapped(self, version: int) -> None:
        """One row."""
        at = pa.array([START], pa.timestamp("us", "UTC"))
        names = [_physical(name) for name in ("device_id", "timestamp", "value")]
        path = Path(self.uri, f"{version}.parquet")
        pq.write_table(pa.table([[1], at, [version]], names), path)
        file = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size}
        self.commit(version, {"add": {**file, "modificationTime": 1, "dataChange": True}})


def _physical(name: str) -> str:
    return "col-4f1c" if name == "value" else name


@pytest.fixture
def theirs(tmp_path: Path) -> Mapped:
    return Mapped(tmp_path)


@pytest.mark.parametrize("is_known", [True, False], ids=["as it is mapped", "as it is no longer"])
def test_a_version_that_was_written_while_columns_were_mapped_is_refused(
    lake: Lake, theirs: Mapped, is_known: bool
):
    source = theirs.source()
    source = replace(source, fields=tuple(replace(f, required=False) for f in source.fields))
    ingest(lake, source)
    theirs.map_columns(1, "name")
    theirs.write_mapped(2)
    if not is_known:
        theirs.map_columns(3, "none")
    with refused("unreadable_input", subject="delta.columnMapping.mode"):
        ingest(lake, source)
    assert [row["value"] for row in bronze_of(lake)] == [0]


def test_versions_behind_a_mapping_that_gave_no_row_are_taken(lake: Lake, theirs: Mapped):
    ingest(lake, theirs.source())
    theirs.map_columns(1, "name")
    theirs.map_columns(2, "none")
    theirs.append(1)
    ingest(lake, theirs.source())
    assert sorted(row["value"] for row in bronze_of(lake)) == [0, 1]
