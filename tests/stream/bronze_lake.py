"""Bronze for tests, a date a partition, and checkpoints that read it: no JVM."""

import json
from datetime import date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.stream.checkpoint import offsets_hash
from tests.bronze import of_ours
from tests.stream.entries import entry, record

SOURCE = "user_events"
FIRST_DAY = date(2026, 3, 1)


def append(lake: Lake, days: int = 1, rows: int = 2, path: str | None = None) -> None:
    """One commit with a file for each of the first `days` days."""
    dates = [FIRST_DAY + timedelta(days=day) for day in range(days) for _ in range(rows)]
    data = pa.table({"n": list(range(len(dates))), "event_date": pa.array(dates, pa.date32())})
    path = path or lake.bronze(SOURCE)
    by = ["event_date"]
    write_deltalake(path, data, mode="append", partition_by=by, commit_properties=of_ours())


def bronze(lake: Lake) -> DeltaTable:
    return DeltaTable(lake.bronze(SOURCE))


def set_properties(lake: Lake, **properties: str) -> None:
    """Properties of bronze, without their `delta.`."""
    bronze(lake).alter.set_table_properties({f"delta.{n}": v for n, v in properties.items()})


def write_position(
    lake: Lake,
    stream: str,
    next_version: int,
    *,
    batch: int = 0,
    committed: bool = True,
    table_id: str | None = None,
    generation: int = 1,
    watermarks_ms: tuple[int, int] = (0, 0),
) -> None:
    """A batch in the checkpoint of `stream`, as Spark and Delta write it; its table has it, if it was committed."""
    checkpoint = Path(lake.checkpoint(stream, generation))
    offset = {
        "sourceVersion": 1,
        "reservoirId": table_id or str(bronze(lake).metadata().id),
        "reservoirVersion": next_version,
        "index": -1,
        "isStartingVersion": False,
    }
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
    lines = ["v1", json.dumps({"batchWatermarkMs": watermarks_ms[0]}), json.dumps(offset)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
    if committed:
        (checkpoint / "commits" / str(batch)).write_text(
            f'v1\n{{"nextBatchWatermarkMs": {watermarks_ms[1]}}}'
        )
        known = {"generation": generation, "batch_id": batch, "codes": (), "bronze_id": None}
        live = entry(1, "live", None, None, **known)
        row = {**(read_generations(lake, stream).current or {}), "source": SOURCE}
        found = offsets_hash(lake, str(checkpoint), batch)
        record(lake, live, stream, row=row | {"output_mode": "append"}, offsets_hash=found)


def rebuild(
    lake: Lake,
    stream: str,
    replayed_version: int,
    *,
    generation: int = 2,
    table_id: str | None = None,
) -> None:
    """A generation that begins with the commit after that version; it has no batch yet."""
    row = {
        "source": SOURCE,
        "seed_savepoint": "s",
        "bronze_id": table_id or str(bronze(lake).metadata().id),
        "bronze_version": replayed_version,
        "bronze_ingested_at_us": 0,
        "until_us": 0,
    }
    seeded = entry(0, "rebuild", None, 0, generation=generation, bronze_id=row["bronze_id"])
    record(lake, seeded, stream, row=row)


def log_file(lake: Lake, version: int) -> Path:
    return Path(lake.bronze(SOURCE), "_delta_log", f"{version:020}.json")


def backdate(lake: Lake, version: int, made: datetime) -> None:
    """Make a commit look as if it had been made then."""
    actions = [json.loads(line) for line in log_file(lake, version).read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = int(made.timestamp() * 1000)
        if "remove" in action:
            action["remove"]["deletionTimestamp"] = int(made.timestamp() * 1000)
    log_file(lake, version).write_text("\n".join(map(json.dumps, actions)))
