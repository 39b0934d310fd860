"""What can be said of a source and of a stream, in `include/streams`; it needs no package."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

from include.connectors import ISO, USUAL_CSV, Connector
from include.connectors import Csv as Csv
from include.connectors import Times as Times
from include.fold.definition import Deduplicate as Deduplicate
from include.fold.definition import KeyedFold, MigrateState
from include.fold.records import SqlTypeError, sql_type
from include.lake.errors import SettingsError, StatefulError

MIB = 1024**2
GIB = 1024**3


def _check(whose: str, *rules: tuple[str, bool, str]) -> None:
    """SettingsError for the first that is not met, of settings, whether they are right, and what they must be."""
    for setting, is_right, said in rules:
        if not is_right:
            raise SettingsError(f"{whose}: {setting} {said}", subject=setting)


def _check_name(kind: str, name: str) -> None:
    is_right = bool(IDENTIFIER.fullmatch(name))
    _check(f"{kind} name", (name, is_right, "must be lower case letters, digits and _"))


def _at_least(declared: Any, **least: Any) -> Iterator[tuple[str, bool, str]]:
    """The rules that settings, where they are not None, are at least so much."""
    for setting, most in least.items():
        value = getattr(declared, setting)
        yield setting, value is None or value >= most, f"must be at least {most}"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a checkpoint and runs may come to before a check speaks up; None is no limit."""

    checkpoint_bytes: int | None = 8 * GIB
    checkpoint_files: int | None = 20_000
    # Change logs that a partition replays at each start: two a run, so about ten runs.
    replay_versions: int | None = 20
    # The largest state partition, in times of the median; from 16 MiB on.
    skew: float | None = 4.0
    growth_bytes: int | None = 1 * GIB  # of the checkpoint from one run to the next
    pending_rows: int | None = 5_000_000
    late_rows: int | None = 10_000  # of one run; any at all are in ops/findings
    uncommitted_batches: int | None = 0
    rss_bytes: int | None = 4 * GIB  # JVM and Python of one run together

    def __post_init__(self) -> None:
        _check("limits", *_at_least(self, **dict.fromkeys(vars(self), 0)))


@dataclass(frozen=True, kw_only=True)
class SavepointRules:
    """How often a stream's state is written down as a savepoint, and for how long it is kept."""

    # Of the stream's clock: a run whose `until` has passed a multiple of it writes one.
    # None: only restatements, rebuilds and `./stateful savepoint` do.
    cadence: timedelta | None = timedelta(days=1)
    # Between two that a restatement or rebuild writes on its way, at multiples of the cadence:
    # fewer events are replayed in less time than a savepoint takes.
    events_apart: int = 1_000_000
    keep: int = 60  # of the newest by `until`
    keep_for: timedelta = timedelta(days=60)  # before the newest one's `until`
    # Those of restates, before the newest one was written, whatever their `until`: the next
    # interval of a backfill of long ago begins with them.
    keep_restated: timedelta = timedelta(days=7)
    # The checkpoint of a generation that a rebuild has replaced, from that on.
    keep_generations: timedelta = timedelta(days=14)

    def __post_init__(self) -> None:
        spans = ("cadence", "keep_for", "keep_restated", "keep_generations")
        least = dict.fromkeys(spans, A_SECOND)
        _check("savepoints", *_at_least(self, keep=1, events_apart=1, **least))


@dataclass(frozen=True, kw_only=True)
class TableMaintenance:
    """When tables are optimized and vacuumed; a property of each says what VACUUM keeps."""

    schedule: str = "20 3 * * *"
    small_file_bytes: int = 32 * MIB  # files below it are joined
    # To files of about this: at least twice as much, or some are looked at in vain every day.
    target_file_bytes: int = 128 * MIB
    # With fewer in a table that have others in their partition, no reader would notice.
    min_small_files: int = 8
    # A VACUUM lists the whole table and makes two commits: from one of these on it is worth it.
    min_garbage_files: int = 20
    min_garbage_bytes: int = 256 * MIB
    timeout: timedelta = timedelta(hours=1)  # of one task


TABLE_MAINTENANCE = TableMaintenance()


@dataclass(frozen=True, kw_only=True)
class Check:
    """A condition by the columns of a stream's table. Null does not meet it, as false does not."""

    name: str
    each_row: str | None = None  # of one row: "count > 0"
    # Of all rows that are published at once, by aggregates: "count_if(model IS NULL) < 10".
    together: str | None = None
    # error: what does not meet it is not published, and the run stops. warning: a finding.
    severity: Literal["warning", "error"] = "error"

    def __post_init__(self) -> None:
        has_one = (self.each_row is None) != (self.together is None)
        _check_name("check", self.name)
        _check(
            f"check {self.name}",
            (self.name, has_one and bool(self.condition.strip()), "needs each_row= or together="),
            (self.name, self.severity in ("warning", "error"), "must be of warning or error"),
        )

    @property
    def condition(self) -> str:
        return self.each_row or self.together or ""


class Verdict(NamedTuple):
    """What a check says of rows that are about to be published."""

    check: Check
    rows: int
    failing: int | None  # rows that do not meet it; None: they do not, together, or by `problem`
    examples: tuple[str, ...] = ()  # of these, as JSON
    problem: str | None = None  # why its condition cannot be asked of them, as 1 / 0 > 1

    @property
    def is_met(self) -> bool:
        return self.failing == 0


class DataCheckError(StatefulError):
    """Rows do not meet a check of severity error, and were not published; the message says what to do."""

    code = "check_failed"


PROJECT = Path(__file__).resolve().parents[1]
NO_TIME, MILLISECOND, A_SECOND = timedelta(0), timedelta(milliseconds=1), timedelta(seconds=1)
RESCUED = "_rescued_data"
IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
# `watermark_per`: the first folder below landing/<source> that a file lies in.
FOLDER = "<folder>"
NOT_EQUAL_TO_ITSELF = ("float", "double", "array", "map", "struct")
# `deduplicate` of a stream that leaves it to its source.
AS_SOURCE: Literal["as source"] = "as source"
GROUP_TYPES = ("string", "tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, kw_only=True)
class Field:
    """One column of a source."""

    name: str
    type: str  # a SQL type: "decimal(12,2)", "array<struct<sku: string, count: int>>"
    comment: str
    required: bool = True
    # Where producers write it, if not under its name: "payload.user.id" is a path.
    path: str | None = None
    times: Times | None = None  # of a timestamp; None: as the source says
    # It is no part of the rows, but of their file's folder: "dt=2026-11-20".
    from_folder: bool = False

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "type", str(sql_type(self.type)))
        except SqlTypeError as error:
            raise SettingsError(f"field {self.name}: {error}", subject=self.name) from None

    @property
    def landed(self) -> str:
        """What it is called in the landed row; of a folder's field with its `=`, as no column is."""
        name = self.path or self.name
        return f"{name}=" if self.from_folder else name


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of event that producers land, and its rules of admission."""

    name: str
    time_field: str  # in the landed row, a path as that of a Field; bronze calls it event_time
    fields: tuple[Field, ...]  # all others, in the order bronze stores them
    comment: str
    # Where its rows come from. None: files in landing/<source>.
    connector: Connector | None = None
    times: Times = ISO  # how producers write the time field, and timestamps
    csv: Csv = USUAL_CSV  # how they write CSV
    # Values of rows that are no fields are kept, as JSON, in bronze's column `_rescued_data`. False: not.
    rescue: bool = True
    ignored: tuple[str, ...] = ()  # names or paths, as producers write them, that are never kept
    # A time further ahead than this of the ingestion is a broken clock, not an event.
    max_future: timedelta = timedelta(hours=1)
    # A batch of a stream never cuts a commit, so this bounds what it must read at once.
    commit_bytes: int = 64 * MIB
    # A file is parsed in one piece; a larger one is refused with the advice to split it.
    max_file_bytes: int = 512 * MIB
    # The share of a batch's rows that may be refused before people are told; of a whole file always.
    max_quarantined: float = 0.01
    # More waiting is parsed by Spark, in a JVM; less by processes here, as fast: docs/speed.md.
    spark_bytes: int = 1 * GIB
    # Each ingest run of a silent source writes a heartbeat: "all events up to this long before the
    # run's interval ended have landed". None: only data moves the watermark.
    heartbeat_delay: timedelta | None = None
    # The most that the heartbeat of one run moves the watermark on, should a machine's clock be
    # wrong. Above the time between two runs, or a silent source never catches up. None: no bound.
    max_clock_step: timedelta | None = timedelta(days=2)
    # A required field, or FOLDER: the watermark is the least of what its groups have reached, so
    # that none that is ahead makes rows of others late. None: the newest time of all rows.
    watermark_per: str | None = None
    # Without a row of it for so long, a group holds the watermark back no more.
    idle_after: timedelta = timedelta(days=1)
    # The most groups at once, idle ones that the watermark has passed not counted.
    watermark_groups: int = 1_000
    # A cron expression of a Dag that only ingests. None: the Dags of its streams do.
    schedule: str | None = None
    # Of streams that do not say otherwise, none folds an event that its key has folded before.
    deduplicate: Deduplicate | None = None

    def __post_init__(self) -> None:
        _check_name("source", self.name)
        types = {field.name: sql_type(field.type).name for field in self.fields}
        names = [field.name for field in self.fields]
        lower = [name.lower() for name in names]
        twice = [name for name in names if lower.count(name.lower()) > 1]
        groups = [f.name for f in self.fields if f.required and f.type in GROUP_TYPES]
        known_by = self.deduplicate.names if self.deduplicate else ()
        _check(
            f"source {self.name}",
            (
                "watermark_per",
                self.watermark_per in (None, FOLDER, *groups),
                f"must be FOLDER or a required field of {GROUP_TYPES}: {', '.join(groups)}",
            ),
            # Its rows would be grouped by a topic's name, or by versions of a table.
            (
                "watermark_per",
                self.watermark_per != FOLDER or self.connector is None,
                f"FOLDER is for files in landing/{self.name}: of others give a required field",
            ),
            (
                "deduplicate",
                all(types.get(name, "struct") not in NOT_EQUAL_TO_ITSELF for name in known_by),
                f"{known_by} is no field, or of a type by which none is known again",
            ),
            (
                "".join(twice[-1:]),
                not twice,
                "and another field differ in case alone: call one something else, with path=",
            ),
            ("max_quarantined", 0 <= self.max_quarantined <= 1, "is a share of rows, from 0 to 1"),
            *_at_least(
                self,
                commit_bytes=1,
                max_file_bytes=1,
                spark_bytes=0,
                watermark_groups=1,
                idle_after=2 * MILLISECOND,
                max_future=NO_TIME,
                heartbeat_delay=NO_TIME,
                max_clock_step=MILLISECOND,
            ),
        )
        if self.connector is not None:
            paths = (self.time_field, *(field.landed for field in self.fields))
            self.connector.check_paths(self.name, paths)


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One streaming query with its checkpoint and table, and the Dag around it."""

    source: str  # the name of one in `include/streams/sources.py`
    schedule: str  # a cron expression: the Dag run's data interval is the time between two ticks
    watermark_delay: timedelta  # how far behind the newest event a row may come and still count
    # What is computed: a fold, or a function that makes one of the stream's `settings`.
    fold: KeyedFold | Callable[..., KeyedFold] = field(repr=False)
    comments: Mapping[str, str] = field(repr=False)  # one for each column of the outputs
    name: str = ""  # that of its file
    title: str = ""  # of the table; the first line of the file's docstring
    # After a change of the state's fields: from a key's old state to its new one.
    migrate_state: MigrateState | None = field(default=None, repr=False)
    # The unit of state and of a Python call: more buckets make sparse batches cheaper and
    # dense ones dearer (`make bench`). Pinned in the checkpoint; changed only by a rebuild.
    buckets: int = 32
    state_partitions: int = 4  # Spark pins this in the checkpoint, too
    timeout: timedelta = timedelta(hours=1)  # of one task
    # The promise that the table is complete until so long ago at most: docs/operate.md.
    fresh_within: timedelta | None = None
    # The arguments of a `fold` that is a function: pinned as the state is made with them.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # An event that the state function fails for fails the run; or it goes to dead_letters/<stream>.
    on_error: Literal["stop", "dead_letter"] = "stop"
    # A run whose code is new goes on with the state; or it stops for a person to decide.
    on_code_change: Literal["run", "stop"] = "run"
    # Events that producers deliver again are passed over; None: no event is.
    deduplicate: Deduplicate | Literal["as source"] | None = AS_SOURCE
    # What must hold of its rows before they are published; docs/checks.md.
    checks: tuple[Check, ...] = ()
    limits: Limits = field(default_factory=Limits)
    savepoints: SavepointRules = field(default_factory=SavepointRules)
    # RocksDB settings held by hand, by Spark's short names ("writeBufferSizeMB"): never tuned.
    rocksdb: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name:
            _check_name("stream", self.name)
        checks, delay = [check.name for check in self.checks], self.watermark_delay
        _check(
            f"stream {self.name}",
            *((name, checks.count(name) == 1, "is the name of several checks") for name in checks),
            *_at_least(self, buckets=1, state_partitions=1, watermark_delay=NO_TIME),
            ("on_error", self.on_error in ("stop", "dead_letter"), "must be stop or dead_letter"),
            ("on_code_change", self.on_code_change in ("run", "stop"), "must be run or stop"),
            # Spark's watermark is in whole milliseconds; a finer delay would differ from it.
            ("watermark_delay", not delay % MILLISECOND, "must be whole milliseconds"),
            (
                "fresh_within",
                self.fresh_within is None or self.fresh_within > delay,
                f"must be above watermark_delay ({delay}), and leave time for a run",
            ),
        )


def default_lake() -> str:
    """The lake of this installation: LAKE, or the folder `lake` of the project."""
    return absolute_lake(os.environ.get("LAKE") or str(PROJECT / "lake"))


def absolute_lake(lake: str) -> str:
    """`lake` whatever the working directory: jobs and Airflow have others."""
    return lake if "://" in lake else str(Path(lake).expanduser().absolute())
