"""A Delta table of somebody else, for tests of sources whose rows come from one."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from include import origins
from include.lake.paths import Lake
from include.landing import delta_versions
from include.landing.accept_loss import accept_loss, plan_loss
from include.landing.connector import GoesOn
from include.settings import Source
from tests.ingested import SIGNALS, bronze_of
from tests.landed_files import START

ACCEPT = "./stateful ingest signals --accept-loss --apply"


def lost(lake: Lake, source: Source) -> GoesOn | None:
    """What is lost, and was not taken."""
    loss = plan_loss(lake, source)
    return loss and loss.behind


def accept_lost(lake: Lake, source: Source) -> GoesOn:
    """As `./stateful ingest SOURCE --accept-loss`; what it has given up."""
    loss = plan_loss(lake, source)
    assert loss is not None
    accept_loss(loss)
    return loss.behind


def values_of(lake: Lake) -> list[int]:
    """The values of bronze, in order."""
    return sorted(row["value"] for row in bronze_of(lake) if not row["is_clock"])


class Theirs:
    """The table of somebody else; `rows` is what it was ever given."""

    def __init__(self, folder: Path, partition_by: list[str] | None = None) -> None:
        self.uri, self._partition_by, self.given = str(folder / "theirs"), partition_by, 0

    def source(self, **changes: Any) -> Source:
        return replace(SIGNALS, origin=origins.DeltaTable(uri=self.uri, **changes))

    def append(self, count: int = 2, bad: int = 0, mode: str = "append") -> None:
        numbers = range(self.given, self.given + count + bad)
        self.given += count + bad
        times = [START + timedelta(seconds=number) for number in numbers]
        values = [None if index >= count else number for index, number in enumerate(numbers)]
        rows = {"device_id": [n % 2 for n in numbers], "timestamp": times, "value": values}
        schema = pa.schema(
            [
                ("device_id", pa.int64()),
                ("timestamp", pa.timestamp("us", "UTC")),
                ("value", pa.int64()),
            ]
        )
        write_deltalake(
            self.uri,
            pa.table(rows, schema),
            mode=mode,
            partition_by=self._partition_by,  # type: ignore[arg-type]
        )

    def optimize(self) -> None:
        DeltaTable(self.uri).optimize.compact()

    def delete(self, value: int) -> None:
        DeltaTable(self.uri).delete(f"value = {value}")

    def merge_new(self, count: int) -> None:
        """A MERGE that only inserts."""
        numbers = range(self.given, self.given + count)
        self.given += count
        at = [START + timedelta(seconds=number) for number in numbers]
        rows = {
            "device_id": [number % 2 for number in numbers],
            "timestamp": pa.array(at, pa.timestamp("us", "UTC")),
            "value": [*numbers],
        }
        (
            DeltaTable(self.uri)
            .merge(pa.table(rows), "t.value = s.value", source_alias="s", target_alias="t")
            .when_not_matched_insert_all()
            .execute()
        )

    def commit_file(self, version: int) -> Path:
        return Path(self.uri, "_delta_log", f"{version:020}.json")

    def files(self) -> list[Path]:
        return sorted(Path(self.uri).rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def remember_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the log of a version can not be read."""
    monkeypatch.setattr(delta_versions, "commit_id", lambda *_: None)
