"""A table whose columns somebody has dropped, renamed or given another type: no row is written for that."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from include.lake.paths import Lake
from include.lake.table_seal import seal, what_changed

TABLE = "tables/counts"
Fields = list[dict[str, Any]]


@pytest.fixture
def path(lake: Lake) -> Path:
    made = Path(lake.root, TABLE)
    write_deltalake(made, pa.table({"key": ["a", "b"], "n": [1, 2]}))
    seal(lake, TABLE)
    return made


def alter(path: Path, change: Callable[[Fields], None]) -> None:
    """As Spark does it under delta.columnMapping.mode: a commit of the table's metadata alone."""
    log = path / "_delta_log"
    actions = map(json.loads, (log / f"{0:020}.json").read_text().splitlines())
    metadata = next(action for action in actions if "metaData" in action)
    schema = json.loads(metadata["metaData"]["schemaString"])
    change(schema["fields"])
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    info = {"commitInfo": {"operation": "ALTER TABLE", "timestamp": 0}}
    text = "\n".join(map(json.dumps, [info, metadata]))
    (log / f"{DeltaTable(path).version() + 1:020}.json").write_text(text)


def dropped(fields: Fields) -> None:
    del fields[1]


def renamed(fields: Fields) -> None:
    fields[1]["name"] = "m"


def retyped(fields: Fields) -> None:
    fields[1]["type"] = "string"


@pytest.mark.parametrize("change", [dropped, renamed, retyped])
def test_a_column_that_is_not_there_any_more_is_a_change(lake: Lake, path: Path, change):
    alter(path, change)
    assert "n int64" in str(what_changed(lake, TABLE))


def test_columns_that_were_added_commented_or_moved_are_none(lake: Lake, path: Path):
    DeltaTable(path).alter.add_columns(Schema.from_arrow(pa.schema({"more": pa.int64()})).fields)
    DeltaTable(path).alter.set_column_metadata("n", {"comment": "How many"})
    alter(path, list.reverse)
    assert what_changed(lake, TABLE) is None
