"""Landing for tests: files of signals in a known order, and batches that were not finished."""

import io
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from include.lake.paths import Lake

START = datetime(2026, 3, 1, tzinfo=UTC)


def signal(second: float, device_id: Any = 1, value: Any = 10) -> str:
    time = START + timedelta(seconds=second)
    return json.dumps({"device_id": device_id, "timestamp": time.isoformat(), "value": value})


def parquet(compression: str = "snappy", **columns: Any) -> bytes:
    """A file of these columns."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression=compression)
    return sink.getvalue()


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
