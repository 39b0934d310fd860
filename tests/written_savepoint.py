"""A savepoint as a job has written it, of whatever it is to be."""

from datetime import datetime
from typing import Any

import pyarrow as pa

from include.fold.admission import micros_of
from include.lake.paths import Lake
from include.lake.table import stage
from include.stream.manifest import Savepoint, write_manifest

# What whoever writes one says of it.
MANIFEST: Any = {
    "kind": "live",
    "run_id": "some-run",
    "events": 1,
    "bronze_id": "b",
    "bronze_ingested_at_us": None,
    "code": "c",
    "state_schema": "",
}


def written_savepoint(
    lake: Lake, stream: str, until: datetime, rows: pa.Table | None = None, **columns: Any
) -> Savepoint:
    """`rows` are its states, of which all that is not asked for is missing."""
    if rows is None:
        rows = pa.table({"key": ["k"]})
    known = {
        "savepoint_id": f"{until:%Y%m%dT%H%M%S%f}-{len(lake.folders(lake.savepoints(stream)))}",
        **MANIFEST,
        **columns,
    }
    staged = stage(lake.savepoint(stream, known["savepoint_id"]), rows, rows.schema)
    return write_manifest(lake, staged, stream=stream, until_us=micros_of(until), **known)
