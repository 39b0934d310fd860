"""The rehearsal's input: a few hours of events of each source, landed a part at a time."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from pyarrow import fs

from include.lake.paths import Lake
from include.landing.clock import LAGGING
from include.registry import source_named
from include.sample.sample_data import Options, generate

START = datetime(2026, 3, 1, tzinfo=UTC)
LATE_FILE = "late.jsonl"
LATE_SIGNALS = 40
LATE_EVERY = timedelta(minutes=2)


@dataclass(frozen=True)
class Sample:
    """How much is generated of each source, and in how many parts it lands."""

    events: int
    hours: int
    parts: int


@dataclass
class Landing:
    """What has landed of each source, and what waits in `staging` for its turn.

    Rows come at most five minutes late, half of what the streams wait: none may be lost.
    """

    lake: Lake
    staging: Path
    sample: Sample
    rows: dict[str, int] = field(default_factory=dict)  # landed, of each source
    _waiting: dict[str, list[list[Path]]] = field(default_factory=dict)

    def stage(self, source: str) -> None:
        """Generate all parts of a source."""
        options = Options(
            start=START,
            keys=30,
            events=self.sample.events,
            span_hours=self.sample.hours,
            late_share=0,
            malformed_share=0.02,
            duplicate_share=0.02,
        )
        generate(Lake(str(self.staging)), source_named(source), options)
        files = sorted(Path(Lake(str(self.staging)).landing(source)).iterdir())
        parts = self.sample.parts
        cuts = [round(part * len(files) / parts) for part in range(parts + 1)]
        self._waiting[source] = [files[start:end] for start, end in pairwise(cuts)]
        self.lake.filesystem.create_dir(self._folder(source), recursive=True)
        if source_named(source).clock_grace is not None:
            # The sample is months old: a clock row before its end would make the rest late.
            with self.lake.filesystem.open_output_stream(f"{self._folder(source)}/{LAGGING}"):
                pass

    def has_next(self, source: str) -> bool:
        return bool(self._waiting[source])

    def land_next(self, source: str) -> None:
        """Land the next part. With the last one nobody is behind any more."""
        for file in self._waiting[source].pop(0):
            self._land(source, file)
        if not self.has_next(source) and source_named(source).clock_grace is not None:
            self.lake.filesystem.delete_file(f"{self._folder(source)}/{LAGGING}")

    def land_late_signals(self) -> None:
        """Signals of the first part, once it has been settled: newer ones would make the rest late."""
        file = self.staging / LATE_FILE
        lines = [
            {
                "device_id": 1 + number % 5,
                "value": number,
                "timestamp": f"{START + number * LATE_EVERY:%Y-%m-%dT%H:%M:%S.%fZ}",
            }
            for number in range(LATE_SIGNALS)
        ]
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        self._land("signals", file)

    def _land(self, source: str, file: Path) -> None:
        folder = self._folder(source)
        hidden = f"{folder}/_{file.name}"
        fs.copy_files(str(file), hidden, fs.LocalFileSystem(), self.lake.filesystem)
        self.lake.filesystem.move(hidden, f"{folder}/{file.name}")
        self.rows[source] = self.rows.get(source, 0) + len(file.read_bytes().splitlines())

    def _folder(self, source: str) -> str:
        return self.lake.path_in_filesystem(self.lake.landing(source))
