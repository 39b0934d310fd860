"""Landing for tests: files of signals in a known order, and batches that were not finished."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from include.lake.delta_log import read_actions
from include.lake.paths import Lake
from include.lake.table_seal import read_seal, seal

START = datetime(2026, 3, 1, tzinfo=UTC)


def signal(second: float, device_id: Any = 1, value: Any = 10) -> str:
    time = START + timedelta(seconds=second)
    return json.dumps({"device_id": device_id, "timestamp": time.isoformat(), "value": value})


class Landing:
    """Lands files in a known order: they are taken by their modification time."""

    def __init__(self, lake: Lake) -> None:
        self.folder = Path(lake.landing("signals"))
        self._clock = 1_700_000_000

    def add(self, name: str, content: bytes | str | list[str]) -> Path:
        if isinstance(content, list):
            content = "".join(f"{line}\n" for line in content)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self._clock += 1
        os.utime(path, (self._clock, self._clock))
        return path


def forget_finish(lake: Lake) -> None:
    """As if the ingestion of signals had died just before it finished its newest batch.

    The commit that finished it is the newest of the position, until something else has landed.
    """
    path = lake.ingested_files("signals")
    version = DeltaTable(path).version()
    names = [
        action["txn"]["appId"] for action in read_actions(lake, path, version) if "txn" in action
    ]
    assert [name.split("/")[2] for name in names] == ["done"]
    Path(path, "_delta_log", f"{version:020}.json").unlink()
    if read_seal(lake, "ingested_files/signals"):
        seal(lake, "ingested_files/signals")
