"""A Delta table of somebody else, for tests of sources whose rows come from one."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableMerger

from include import connectors
from include.ingest.ingest import ingest
from include.ingest.source_connector import accept_loss, plan_loss
from include.ingest.splits import Loss
from include.lake.paths import Lake
from include.settings import Source
from tests.ingested import SIGNALS, bronze_of
from tests.landed_files import START
from tests.refused import refused

ACCEPT = "./stateful ingest signals --accept-loss --apply"


def accept_lost(lake: Lake, source: Source) -> Loss:
    """Accept the loss as `./stateful ingest SOURCE --accept-loss --apply` does."""
    loss = plan_loss(lake, source)
    assert loss is not None
    accept_loss(lake, source, loss)
    return loss


def stop_until_accepted(lake: Lake, source: Source) -> int:
    """Ingestion stops until the loss is accepted; how many are lost."""
    for _ in range(2):
        with refused("lost_input", subject="signals", command=ACCEPT):
            ingest(lake, source)
    return accept_lost(lake, source).lost


def values_of(lake: Lake) -> list[int]:
    """The values of bronze, in order."""
    return sorted(row["value"] for row in bronze_of(lake) if not row["is_heartbeat"])


class Theirs:
    """The table of somebody else, with a feed of changes; it was given numbers below `given`."""

    def __init__(self, folder: Path, partition_by: list[str] | None = None) -> None:
        self.uri, self._partition_by, self.given = str(folder / "theirs"), partition_by, 0

    def source(self, **changes: Any) -> Source:
        return replace(SIGNALS, connector=connectors.DeltaTable(uri=self.uri, **changes))

    def append(self, count: int = 2, bad: int = 0, mode: str = "append") -> None:
        numbers = range(self.given, self.given + count + bad)
        self.given += count + bad
        is_there = DeltaTable.is_deltatable(self.uri)
        write_deltalake(
            self.uri,
            _rows(numbers, [None if n >= count else number for n, number in enumerate(numbers)]),
            mode=mode,
            partition_by=self._partition_by,  # type: ignore[arg-type]
            configuration=None if is_there else {"delta.enableChangeDataFeed": "true"},
        )

    def optimize(self) -> None:
        DeltaTable(self.uri).optimize.compact()

    def delete(self, value: int) -> None:
        DeltaTable(self.uri).delete(f"value = {value}")

    def merge_new(self, count: int) -> None:
        """A MERGE that only inserts."""
        self._merge(count).when_not_matched_insert_all().execute()

    def merge_known(self, count: int) -> None:
        """One that also updates the newest row."""
        merger = self._merge(count, known=1).when_matched_update_all()
        merger.when_not_matched_insert_all().execute()

    def merge_away(self) -> None:
        """One that only deletes the newest row."""
        self._merge(0, known=1).when_matched_delete().execute()

    def _merge(self, count: int, known: int = 0) -> TableMerger:
        numbers = range(self.given - known, self.given + count)
        self.given += count
        rows, named = _rows(numbers, [*numbers]), {"source_alias": "s", "target_alias": "t"}
        return DeltaTable(self.uri).merge(rows, "t.value = s.value", **named)

    def commit_file(self, version: int) -> Path:
        return Path(self.uri, "_delta_log", f"{version:020}.json")

    def files(self) -> list[Path]:
        return sorted(Path(self.uri).rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def _rows(numbers: range, values: list[int | None]) -> pa.Table:
    at = [START + timedelta(seconds=number) for number in numbers]
    return pa.table(
        {
            "device_id": pa.array([number % 2 for number in numbers], pa.int64()),
            "timestamp": pa.array(at, pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.int64()),
        }
    )
