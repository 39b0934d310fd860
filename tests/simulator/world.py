"""A small world to run operations in: a lake, a clock that is set, a source, and three streams.

`open_world` puts its source and its streams in the place of the shipped ones, and its clock in
the place of the machine's, in all of `include` and `spark_jobs` that has been imported by then,
while its body runs.
"""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.fold.admission import EPOCH, instant_of, micros_of
from include.ingest.amendments import SET_WATERMARK, amendments_of
from include.ingest.bronze_tables import follow_fields
from include.ingest.ingest import heartbeat, ingest
from include.ingest.ingest_log import Ingestion, read_log
from include.ingest.parse_files import bronze_rows
from include.ingest.watermark import SourceWatermark, advance_watermark
from include.lake.delta_log import dataset_of
from include.lake.paths import Lake
from include.lake.table import Table
from include.settings import RESCUED, Field, SavepointRules, Source, Stream
from include.streams import sources
from tests.declared import NOT_WRITTEN, look_in, put_file, register
from tests.simulator import shaped_rows
from tests.simulator.live_model import LiveModel
from tests.simulator.local_engine import LocalEngine
from tests.simulator.oracle import Commit, Emitted
from tests.simulator.replaced import set_clock
from tests.simulator.shapes import FLAT, Landed, Shape
from tests.simulator.stream_files import KINDS, stream_file
from tests.simulator.writes import is_killing, killed_at
from tests.sql_checks import judge_rows

START_US = 1_750_032_000_000_000  # 2025-06-16T00:00:00Z
MINUTE_US = 60_000_000
DAY = timedelta(days=1)
DELAY = timedelta(minutes=10)
SOURCE = Source(
    name="sent",
    time_field="sent_at",
    comment="What producers send",
    fields=(
        Field(name="key", type="string", comment="Whose it is"),
        Field(name="value", type="bigint", comment="How much"),
    ),
    heartbeat_delay=timedelta(minutes=1),
)
# Its clock is that of its keys.
GROUPED = replace(SOURCE, watermark_per="key", idle_after=timedelta(hours=2))
STREAMS = tuple(
    Stream(
        name=f"sim_{kind}",
        source=SOURCE.name,
        schedule="0 * * * *",
        watermark_delay=DELAY,
        fold=NOT_WRITTEN,
        comments={},
        buckets=2,
        state_partitions=2,
        savepoints=SavepointRules(cadence=DAY),
    )
    for kind in KINDS
)
FROM_FILE = 0.25


class Begun(NamedTuple):
    """A world that has come some way."""

    lake: Path  # a copy
    now_us: int
    told: Any  # what the oracle knows


class World:
    """One lake, and what producers have sent to it. `commits` is for the oracle."""

    def __init__(self, folder: Path, source: Source, shape: Shape) -> None:
        self.source = shaped_rows.shaped_source(source, shape)
        self.shape = shape
        self.lake = Lake(str(folder / "lake"))
        Path(self.lake.root).mkdir(exist_ok=True)
        self.engine = LocalEngine(LiveModel(), judge_rows)
        self.now_us = START_US
        self.commits: list[Commit] = []
        self._repairs: set[int] = set()  # those that `commits` has
        again = shaped_rows.deduplicated(shape)
        named = zip(KINDS, STREAMS, strict=True)
        self.streams = {kind: replace(each, deduplicate=again) for kind, each in named}
        self.deployed: dict[str, str] = {}  # the variant of each kind
        self._files = folder / "streams"
        self._files.mkdir(exist_ok=True)
        self.landed: Commit | None = None  # of a file that ingestion has not come to the end of
        self.files_landed = 0
        Ingestion(self.lake, self.source)

    def copied(self, folder: Path) -> Begun:
        lake = Path(shutil.copytree(self.lake.root, folder / "lake"))
        return Begun(lake, self.now_us, [*self.commits])

    def go_on(self, begun: Begun) -> None:
        shutil.rmtree(self.lake.root)
        shutil.copytree(begun.lake, self.lake.root)
        self.now_us, self.commits[:] = begun.now_us, begun.told

    # Time

    def now(self) -> datetime:
        return instant_of(self.now_us)

    def pass_time(self, span: timedelta) -> None:
        self.now_us += span // timedelta(microseconds=1)

    # Streams

    @property
    def files(self) -> Path:
        return self._files

    def entries(self) -> dict[str, Stream]:
        """The project's streams, by name."""
        return {stream.name: stream for stream in self.streams.values()}

    def deploy(self, kind: str, variant: str) -> None:
        """Put a variant's file in its place, as a new process would load it."""
        if variant in "cde":
            self._declare_value()
        self.put_file(kind, stream_file(kind, variant, self.shape))
        self.deployed[kind] = variant

    def put_file(self, kind: str, text: str) -> None:
        stream = self.streams[kind]
        put_file(self._files / f"{stream.name}.py", text, stream)

    def configure(self, kind: str, **changes: Any) -> Stream:
        """Another entry for a stream: buckets, watermark_delay, ..."""
        stream = replace(self.streams[kind], **changes)
        self.streams[kind] = stream
        return stream

    # Bronze

    @property
    def clock_us(self) -> int | None:
        """Its watermark."""
        return Ingestion(self.lake, self.source).watermark().watermark_us

    def _declare_value(self) -> None:
        """Declare the field `value`, for a stream that reads it."""
        if not self._has_value:
            self.source = shaped_rows.with_value(self.source)
            sources.SOURCES = (self.source,)
            follow_fields(Table.open(self.lake, self.lake.bronze(SOURCE.name)), self.source)

    @property
    def _has_value(self) -> bool:
        return any(field.name == "value" for field in self.source.fields)

    def ingest(self, rows: Sequence[Landed]) -> None:
        """One commit of bronze, stamped as ingestion does it. Now and then by ingestion itself, of a
        file, where the shape says of which format: that takes ten times as long."""
        if self.shape.format is not None:
            chance = Random(f"{self.shape.seed} {len(self.commits)}")
            if not self.commits or chance.random() < FROM_FILE:
                self.ingest_file(rows, kill=chance.randrange(-8, 8))
                return
        self.append(rows)

    def append(self, rows: Sequence[Landed]) -> None:
        """Take rows in as ingestion does, but without a file."""
        newest: dict[str, int] = {}
        for row in rows:
            newest[row.key] = max(row.time_us, newest.get(row.key, row.time_us))

        def after(before: SourceWatermark) -> SourceWatermark:
            return advance_watermark(before, max(newest.values()), self.now_us, newest)

        self._append(rows, after, Commit(self.now_us, tuple(rows)))

    def ingest_file(self, rows: Sequence[Landed], kill: int) -> None:
        """Take in a file by a run of ingestion, which may be killed and repeated.

        Who was killed behind the log's commit leaves it to the next commit, of one row once more."""
        folder = Path(self.lake.landing(self.source.name))
        folder.mkdir(parents=True, exist_ok=True)
        self.files_landed += 1
        file = folder / f"{self.files_landed:06}.{self.shape.format}"
        file.write_bytes(shaped_rows.landed_file(rows, self.shape))
        self.landed = Commit(self.now_us, tuple(rows))
        logged = self._logged()
        died = kill > 0 and not is_killing() and killed_at(kill, self.take_landed)
        if died and self._logged() > logged:
            self.commits.append(self.landed)
            self.landed = None
            self.append(rows[:1])
        else:
            self.take_landed()

    def _logged(self) -> int:
        log = read_log(self.lake, self.source.name)
        return -1 if log is None else log.newest

    def take_landed(self) -> None:
        """Ingest what has landed, and tell the oracle of it."""
        ingest(self.lake, self.source, interval_end=EPOCH)
        if self.landed is not None:
            self.commits.append(self.landed)
        self.landed = None

    def ingest_clock(self, clock_us: int) -> None:
        """A heartbeat, which says that all until then has landed; none if it says nothing new."""
        before = Ingestion(self.lake, self.source).watermark()
        if before.watermark_us is None or clock_us <= before.watermark_us:
            return
        clock_us = clock_us // 1000 * 1000
        commit = Commit(self.now_us, (), clock_us)
        self._append((), lambda before: advance_watermark(before, clock_us, self.now_us), commit)

    def note_repairs(self) -> None:
        """Commits of bronze that have set the watermark back, by jobs: tell the oracle of them."""
        for repair in amendments_of(self.lake, SOURCE.name).known:
            if (
                repair.kind == SET_WATERMARK
                and repair.is_amended
                and repair.number not in self._repairs
            ):
                self._repairs.add(repair.number)
                self.commits.append(Commit(self.now_us, (), reset_us=repair.to_us))

    def _append(
        self,
        rows: Sequence[Landed],
        next_clock: Callable[[SourceWatermark], SourceWatermark],
        commit: Commit,
    ) -> None:
        ingestion = Ingestion(self.lake, self.source)
        ingestion.finish()
        before = ingestion.watermark()
        after = next_clock(before)
        if not rows:
            ingestion.commit_rows(before, after, heartbeat(self.source, before, after))
            self.commits.append(commit)
            return
        events = pa.table(
            {
                "key": [r.key for r in rows],
                "value": [r.value for r in rows],
                "event_time_us": [r.time_us for r in rows],
                "source_file": ["a.jsonl"] * len(rows),
                **shaped_rows.landed_columns(rows, self.shape),
            }
        )
        if not self._has_value:
            events = events.append_column(RESCUED, shaped_rows.rescued(rows))
        ingestion.commit_rows(before, after, bronze_rows(self.source, events, before, after))
        self.commits.append(commit)

    # Tables

    def dead_letters(self, kind: str) -> Counter[tuple[str, int]]:
        """The failed calls that a stream's table of them has: key, and when."""
        path = self.lake.dead_letters(self.streams[kind].name)
        if not DeltaTable.is_deltatable(path):
            return Counter()
        rows = dataset_of(path).to_table().to_pylist()
        assert all(row["error"] == "ValueError" for row in rows)
        assert all(row["at_date"] == row["at"].date() for row in rows)
        return Counter((row["key"], micros_of(row["at"])) for row in rows)

    def table(self, kind: str) -> Counter[Emitted]:
        """The rows of a stream's table, in the oracle's words."""
        path = self.lake.table(self.streams[kind].name)
        if not DeltaTable.is_deltatable(path):
            return Counter()
        rows = dataset_of(path).to_table().to_pylist()
        of = self.shape.row_of_table
        return Counter(Emitted(of(row), micros_of(row["emitted_at"])) for row in rows)


@contextmanager
def open_world(
    source: Source = SOURCE, shape: Shape = FLAT, folder: Path | None = None
) -> Iterator[World]:
    """A world in a fresh folder; or in one that stays, with what an earlier process left there."""
    stays, folder = folder is not None, folder or fresh_folder()
    try:
        with pytest.MonkeyPatch.context() as patch:
            world = World(folder, source, shape)
            look_in(patch, world.files)
            patch.setattr(sources, "SOURCES", (world.source,))
            register(patch, world.entries)
            set_clock(patch, world.now)
            for kind in KINDS:
                world.deploy(kind, "a")
            yield world
    finally:
        for stream in STREAMS:
            sys.modules.pop(f"include.streams.{stream.name}", None)
        if not stays:
            shutil.rmtree(folder, ignore_errors=True)


def fresh_folder() -> Path:
    """In memory, where the machine has a file system there."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None, prefix="world-"))
