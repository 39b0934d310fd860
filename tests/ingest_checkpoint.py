"""The position of ingestion as release 0.5 left it: a checkpoint of Spark, written by hand."""

import hashlib
import json
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from deltalake import DeltaTable

from include.fold.instants import micros_of
from include.lake.ops import upsert_ops
from include.lake.paths import Lake
from include.landing.ingest_position import read_position

SOURCE = "signals"
QUERY_ID = "6f1f2a8e-0000-4000-8000-000000000000"


class IngestCheckpoint:
    """Writes what Spark writes: the query's id, the file log, the offsets, the commits."""

    def __init__(self, lake: Lake, query_id: str = QUERY_ID) -> None:
        self._lake = lake
        self.query_id = query_id
        self.folder = Path(lake.ingest_checkpoint(SOURCE))
        self.folder.mkdir(parents=True)
        (self.folder / "metadata").write_text(json.dumps({"id": query_id}))

    def write(self, path: str, *lines: object) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("\n".join(["v1", *texts]))
        return file

    def log(self, path: str, files: dict[str, int]) -> Path:
        """Files, each with the offset at which it was found."""
        landing = self._lake.landing(SOURCE)
        entries = [
            {"path": f"file://{landing}/{quote(name)}", "timestamp": 1, "batchId": offset}
            for name, offset in files.items()
        ]
        return self.write(f"sources/0/{path}", *entries)

    def plan(self, batch: int, offset: int, at_ms: int | None = None) -> None:
        time = {"batchTimestampMs": 1000 + batch if at_ms is None else at_ms}
        self.write(f"offsets/{batch}", time, {"logOffset": offset})

    def commit(self, batch: int) -> None:
        self.write(f"commits/{batch}", {"nextBatchWatermarkMs": 0})

    def seal(self, files: Iterable[str], offset: int, lost: Iterable[str] = ()) -> None:
        """As 0.5 sealed its file log, after each batch."""
        names = list(files)
        hashes = (hashlib.sha256(name.encode()).digest() for name in names)
        digest = sum(int.from_bytes(one, "big") for one in hashes) % 2**256
        row = {
            "table": f"checkpoints/ingest/{SOURCE}",
            "table_id": self.query_id,
            "version": offset,
            "rows_by_date": None,
            "rows": len(names),
            "files_hash": f"{digest:x}",
            "mark": json.dumps({"lost": sorted(lost)}),
            "recorded_at": datetime.now(UTC),
        }
        upsert_ops(self._lake, "tables", ("table",), [row])


def as_of_0_5(lake: Lake) -> IngestCheckpoint:
    """Put a checkpoint in the place of the position, which says the same; its log is sealed."""
    position = read_position(lake, SOURCE)
    assert position is not None
    path = lake.ingested_files(SOURCE)
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    checkpoint = IngestCheckpoint(lake, position.id)
    for batch in range(position.newest + 1):
        planned = [row for row in rows if row["batch"] == batch and row["source_file"]]
        checkpoint.log(str(batch), {row["source_file"]: batch for row in planned})
        checkpoint.plan(batch, batch, micros_of(planned[0]["ingested_at"]) // 1000)
        if any(row["batch"] == batch and row["source_file"] is None for row in rows):
            checkpoint.commit(batch)
    shutil.rmtree(path)
    DeltaTable(lake.ops("tables")).delete(f"`table` = 'ingested_files/{SOURCE}'")
    checkpoint.seal((row["source_file"] for row in rows if row["source_file"]), position.newest)
    return checkpoint
