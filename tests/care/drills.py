"""A drill of a lake with a history, all that it must leave alone, and a difference that it must find."""

import hashlib
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from include.lake.paths import Lake
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import close_state_stores
from tests.faults.command_line import CommandLine, Told
from tests.faults.lakes import Story


def commands_on(spark: SparkSession) -> CommandLine:
    return CommandLine(lambda: SparkEngine(spark), lambda: spark, lambda: close_state_stores(spark))


def drilled(commands: CommandLine, story: Story) -> Told:
    return commands.stateful(story.lake.root, f"drill {story.stream.name}")


def hashes(lake: Lake) -> dict[str, str]:
    """Of all files, and folders, but of the one table that a drill writes to."""
    root = Path(lake.root)
    return {
        str(path.relative_to(root)): hashlib.sha256(
            path.read_bytes() if path.is_file() else b""
        ).hexdigest()
        for path in root.rglob("*")
        if not path.is_relative_to(root / "ops" / "runs") and path != root / "drills"
    }


def plant(story: Story) -> None:
    """Another count in the newest row of the table, by hand: no log and no record tells of it."""
    name = {"device_signals": "count", "user_counts": "total_count"}[story.stream.name]
    paths = map(Path, DeltaTable(story.lake.table(story.stream.name)).file_uris())
    path = max(paths, key=lambda path: max(pq.read_table(path)["emitted_at"].to_pylist()))
    rows = pq.read_table(path)
    emitted, counts = rows["emitted_at"].to_pylist(), rows[name].to_pylist()
    counts[emitted.index(max(emitted))] += 1
    at = rows.schema.get_field_index(name)
    write_as_large(rows.set_column(at, rows.schema.field(at), [counts]), path)


def write_as_large(rows: pa.Table, path: Path) -> None:
    """In the place of a file, with its size, which the table's log has."""
    size, made = path.stat().st_size, io.BytesIO()
    pq.write_table(rows, made, compression="zstd", write_statistics=False, store_schema=False)
    content = made.getvalue()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert len(content) <= size
    padding = bytes(size - len(content))
    path.write_bytes(content[:footer] + padding + content[footer:])
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
