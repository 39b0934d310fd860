"""The settings of sources and streams, as files of `include/streams` declare them. Needs no package.

The comments of the fields are the text of docs/reference.md.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

from include.connectors import (
    A_SECOND,
    EVENT_TIME,
    INPUT,
    ISO,
    NO_TIME,
    USUAL_CSV,
    Connector,
    Merged,
    Rule,
    StreamTable,
    check,
    one_of,
)
from include.connectors import MILLISECOND as MILLISECOND
from include.connectors import PROJECT as PROJECT
from include.connectors import Csv as Csv
from include.connectors import Times as Times
from include.fold.definition import EMITTED_AT, KeyedFold, MigrateState
from include.fold.definition import Deduplicate as Deduplicate
from include.fold.records import SqlTypeError, sql_type
from include.lake.errors import SettingsError, StatefulError

MIB = 1024**2
GIB = 1024**3


def _check_name(kind: str, name: str) -> None:
    is_right = bool(IDENTIFIER.fullmatch(name))
    check(f"{kind} name", (name, is_right, "must be lower case letters, digits and _"))


def _at_least(declared: Any, **least: Any) -> Iterator[Rule]:
    """Yield a rule for each setting of `declared`: None, or at least that value."""
    for setting, most in least.items():
        value = getattr(declared, setting)
        yield setting, value is None or value >= most, f"must be at least {most}"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The figures above which a check makes a finding; None is no limit."""

    checkpoint_bytes: int | None = 8 * GIB  # bytes of the checkpoint
    checkpoint_files: int | None = 20_000  # files of the checkpoint
    # Change logs that a start replays in a partition: two a run. Above it the state is compacted.
    replay_versions: int | None = 20
    # The largest state partition, as a multiple of the median; looked at from 16 MiB on.
    skew: float | None = 4.0
    growth_bytes: int | None = 1 * GIB  # growth of the checkpoint from one run to the next
    pending_rows: int | None = 5_000_000  # rows that wait for the watermark
    late_rows: int | None = 10_000  # late rows of one run; any at all are a finding of their own
    uncommitted_batches: int | None = 0  # batches begun and not committed
    rss_bytes: int | None = 4 * GIB  # memory of one run, JVM and Python together

    def __post_init__(self) -> None:
        check("limits", *_at_least(self, **dict.fromkeys(vars(self), 0)))


@dataclass(frozen=True, kw_only=True)
class SavepointRules:
    """The rules of when a stream's state is written as a savepoint, and when savepoints go."""

    # A run whose complete_until has passed a multiple of it writes a savepoint.
    # None: only restates, rebuilds and `./stateful savepoint` write any.
    cadence: timedelta | None = timedelta(days=1)
    # Events between two savepoints that a restate or rebuild writes on its way: fewer are
    # replayed in less time than a savepoint takes.
    events_apart: int = 1_000_000
    keep: int = 60  # how many of the newest are retained
    keep_for: timedelta = timedelta(days=60)  # how far behind the newest others are retained
    # How long those of restates are retained: the next interval of a backfill starts from them.
    keep_restated: timedelta = timedelta(days=7)
    # How long the checkpoint that a rebuild has replaced is retained.
    keep_generations: timedelta = timedelta(days=14)

    def __post_init__(self) -> None:
        spans = ("cadence", "keep_for", "keep_restated", "keep_generations")
        least = dict.fromkeys(spans, A_SECOND)
        check("savepoints", *_at_least(self, keep=1, events_apart=1, **least))


@dataclass(frozen=True, kw_only=True)
class TableMaintenance:
    """When tables are optimized and vacuumed; properties of each table say what VACUUM retains."""

    schedule: str = "20 3 * * *"  # cron expression of the Dag table_maintenance, UTC
    small_file_bytes: int = 32 * MIB  # smaller files are joined
    # Size of joined files; at least twice small_file_bytes, or some are rewritten every day.
    target_file_bytes: int = 128 * MIB
    # Fewer small files with others in their partition are left: no reader would notice.
    min_small_files: int = 8
    # A VACUUM, which lists the whole table, is made from so many unreferenced files on, or
    min_garbage_files: int = 20
    min_garbage_bytes: int = 256 * MIB  # from so many bytes of them on
    timeout: timedelta = timedelta(hours=1)  # of one task


TABLE_MAINTENANCE = TableMaintenance()


@dataclass(frozen=True, kw_only=True)
class Check:
    """A condition on rows of a stream's table, in Spark's SQL. Null fails it, as false does."""

    name: str  # lower case letters, digits and _
    each_row: str | None = None  # a condition on one row: "count > 0"
    # Or one of aggregates over all rows published at once: "count_if(model IS NULL) < 10".
    together: str | None = None
    # error: nothing of these rows is published, and the run stops. warning: a finding.
    severity: Literal["warning", "error"] = "error"

    def __post_init__(self) -> None:
        has_one = (self.each_row is None) != (self.together is None)
        _check_name("check", self.name)
        check(
            f"check {self.name}",
            (self.name, has_one and bool(self.condition.strip()), "needs each_row= or together="),
            one_of(self.name, self.severity, "warning", "error"),
        )

    @property
    def condition(self) -> str:
        return self.each_row or self.together or ""


class Verdict(NamedTuple):
    """The result of a check on rows that are about to be published."""

    check: Check
    rows: int
    failing: int | None  # rows that fail it; None: a `together` fails, or see `problem`
    examples: tuple[str, ...] = ()  # some of these, as JSON
    problem: str | None = None  # why the condition cannot be evaluated, such as 1 / 0 > 1

    @property
    def is_met(self) -> bool:
        return self.failing == 0


class DataCheckError(StatefulError):
    """Rows fail a check of severity error, and were not published."""

    code = "check_failed"


RESCUED = "_rescued_data"
IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
# For `watermark_per`: the first folder below landing/<source> that a file lies in.
FOLDER = "<folder>"
NOT_EQUAL_TO_ITSELF = ("float", "double", "array", "map", "struct")
# `deduplicate` of a stream that has that of its source.
AS_SOURCE: Literal["as source"] = "as source"
GROUP_TYPES = ("string", "tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, kw_only=True)
class Field:
    """One column of a source."""

    name: str  # of the column; unique also without regard to case
    type: str  # a SQL type: "decimal(12,2)", "array<struct<sku: string, count: int>>"
    comment: str  # of the column
    required: bool = True  # False: null or missing is no reason to refuse the row
    # Where producers write it, if not under its name: "payload.user.id".
    path: str | None = None
    times: Times | None = None  # for a timestamp; None: as the source says
    # The value is in the name of the file's folder, "dt=2026-11-20", for all of its rows.
    from_folder: bool = False

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "type", str(sql_type(self.type)))
        except SqlTypeError as error:
            raise SettingsError(f"field {self.name}: {error}", subject=self.name) from None

    @property
    def landed(self) -> str:
        """Its name in the landed row; for one of a folder with `=` behind it, as no column has."""
        name = self.path or self.name
        return f"{name}=" if self.from_folder else name


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of event that producers land, and the rules by which rows are admitted."""

    name: str  # lower case letters, digits and _
    comment: str  # of the table bronze/<source>
    # Name or path of the event's time in the landed row: event_time in bronze. Not given of
    # a StreamTable, where it is emitted_at, and of Merged.
    time_field: str = ""
    # All others, in the order of bronze's columns. Of a StreamTable (): all columns of its outputs;
    # of Merged: `input` and all fields of the inputs.
    fields: tuple[Field, ...] = ()
    # Where rows come from: a KafkaTopic, a DeltaTable, a StreamTable or Merged. None: files in
    # landing/<source>.
    connector: Connector | None = None
    times: Times = ISO  # how producers write the time field, and timestamps
    csv: Csv = USUAL_CSV  # how they write CSV
    # Values that are no fields go to bronze's column `_rescued_data`, as JSON. False: nowhere.
    rescue: bool = True
    ignored: tuple[str, ...] = ()  # names or paths, as producers write them, that are not rescued
    # A row with a time further ahead of ingestion than this goes to quarantine.
    max_future: timedelta = timedelta(hours=1)
    # About the most that one commit to bronze takes; a stream reads whole commits.
    commit_bytes: int = 64 * MIB
    # A larger file goes to quarantine: a file is parsed in one piece.
    max_file_bytes: int = 512 * MIB
    # The share of a batch's rows that may be refused without a finding; a whole file always is one.
    max_quarantined: float = 0.01
    # More bytes waiting are parsed by Spark, less by processes of this machine: docs/speed.md.
    spark_bytes: int = 1 * GIB
    # An ingest run that finds no rows writes a heartbeat: all events up to this long before the
    # end of the run's interval have landed. None: only data moves the watermark.
    heartbeat_delay: timedelta | None = None
    # The most that one heartbeat moves the watermark, should a machine's clock be wrong. Give more
    # than the time between two runs, or a silent source never catches up. None: no bound.
    max_clock_step: timedelta | None = timedelta(days=2)
    # A required field, or FOLDER: the watermark is the least of its groups' newest times, so that
    # none that is ahead makes rows of others late. None: the newest time of all rows.
    watermark_per: str | None = None
    # A group, or input, without a row for so long holds the watermark back no more.
    idle_after: timedelta = timedelta(days=1)
    # The most groups at once, without idle ones that the watermark has passed.
    watermark_groups: int = 1_000
    # Cron expression of a Dag that only ingests. None: the Dags of its streams ingest.
    schedule: str | None = None
    # Deduplicate(...): for streams that do not say otherwise.
    deduplicate: Deduplicate | None = None

    def __post_init__(self) -> None:
        _check_name("source", self.name)
        types = {field.name: sql_type(field.type).name for field in self.fields}
        names = [field.name for field in self.fields]
        lower = [name.lower() for name in names]
        twice = [name for name in names if lower.count(name.lower()) > 1]
        groups = [f.name for f in self.fields if f.required and f.type in GROUP_TYPES]
        known_by = self.deduplicate.names if self.deduplicate and self.fields else ()
        check(
            f"source {self.name}",
            *self._rules_of_clock(),
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

    @property
    def parent(self) -> str | None:
        """The stream whose table it is of, if it is of one."""
        return self.connector.stream if isinstance(self.connector, StreamTable) else None

    @property
    def inputs(self) -> Mapping[str, timedelta]:
        """The sources that it merges, each with its delay."""
        return self.connector.inputs if isinstance(self.connector, Merged) else {}

    @property
    def is_derived(self) -> bool:
        """True if its rows are those of other tables of the lake, and may be taken back."""
        return self.parent is not None or bool(self.inputs)

    def _rules_of_clock(self) -> Iterator[Rule]:
        if self.connector is None or not self.is_derived:
            yield "time_field", bool(self.time_field), "must be given"
            return
        clock = f"must be None: its watermark is until when {self.connector.place} is complete"
        time = EVENT_TIME if self.inputs else EMITTED_AT
        yield "time_field", self.time_field in ("", time), f"must be {time}, or left out"
        yield "heartbeat_delay", self.heartbeat_delay is None, clock
        # The registry gives it the column of the input.
        per = [
            None,
            *(field.name for field in self.fields if self.inputs and field.landed == INPUT),
        ]
        yield "watermark_per", self.watermark_per in per, clock


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One streaming query with its checkpoint and table, and the Dag around it."""

    source: str  # the name of one in `sources.py`
    schedule: str  # cron expression, UTC: the time between two ticks is a Dag run's data interval
    watermark_delay: timedelta  # how far behind the source's watermark a row may be and still count
    # What is computed: map_groups_with_state(...), flat_map_groups_with_state(...), or a function
    # that makes one from `settings`.
    fold: KeyedFold | Callable[..., KeyedFold] = field(repr=False)
    comments: Mapping[str, str] = field(repr=False)  # a text for each column of the outputs
    name: str = ""  # not given: it is the file's
    title: str = ""  # the table's comment; if not given, the first line of the file's docstring
    # A function of a key's old state that returns its new one, for rebuild --migrate-state.
    migrate_state: MigrateState | None = field(default=None, repr=False)
    # Groups of keys, each stored and called as one: more make sparse batches cheaper, dense ones
    # dearer (docs/speed.md). A rebuild changes it (--buckets).
    buckets: int = 32
    state_partitions: int = 4  # of RocksDB; a rebuild changes it (--partitions)
    # How often Airflow looks whether something has come, to start a run then: docs/operate.md.
    on_arrival: timedelta | None = None
    timeout: timedelta = timedelta(hours=1)  # of one task
    # The promise that complete_until is at most so long ago: docs/operate.md.
    fresh_within: timedelta | None = None
    # The arguments of a `fold` that is a function. A rebuild changes them.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # An event for which the function raises stops the run, or goes to dead_letters/<stream>.
    on_error: Literal["stop", "dead_letter"] = "stop"
    # A run with changed code goes on with the state and warns, or stops until a person decides.
    on_code_change: Literal["run", "stop"] = "run"
    # Deduplicate(...): events delivered again are not folded. AS_SOURCE: as the source says.
    deduplicate: Deduplicate | Literal["as source"] | None = AS_SOURCE
    # Conditions on rows before they are published.
    checks: tuple[Check, ...] = ()
    limits: Limits = field(default_factory=Limits)  # figures above which a check makes a finding
    # How often savepoints are written, and how long they are retained.
    savepoints: SavepointRules = field(default_factory=SavepointRules)
    # Settings of RocksDB by Spark's short names ("writeBufferSizeMB"), which are not tuned then.
    rocksdb: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name:
            _check_name("stream", self.name)
        checks, delay = [check.name for check in self.checks], self.watermark_delay
        check(
            f"stream {self.name}",
            *((name, checks.count(name) == 1, "is the name of several checks") for name in checks),
            *_at_least(self, buckets=1, state_partitions=1, watermark_delay=NO_TIME),
            *_at_least(self, on_arrival=timedelta(seconds=10)),
            one_of("on_error", self.on_error, "stop", "dead_letter"),
            one_of("on_code_change", self.on_code_change, "run", "stop"),
            # Spark's watermark is in whole milliseconds; a finer delay would differ from it.
            ("watermark_delay", not delay % MILLISECOND, "must be whole milliseconds"),
            (
                "fresh_within",
                self.fresh_within is None or self.fresh_within > delay,
                f"must be above watermark_delay ({delay}), and leave time for a run",
            ),
        )


def default_lake() -> str:
    """Return the lake of this installation: LAKE, or the folder `lake` of the project."""
    return absolute_lake(os.environ.get("LAKE") or str(PROJECT / "lake"))


DEPLOY, APPROVE = "DEPLOY", "approve"


def is_approval_needed() -> bool:
    """Return whether DEPLOY says that code waits for an approval; SettingsError for another value."""
    said = os.environ.get(DEPLOY, "")
    check("the environment", (DEPLOY, said in ("", APPROVE), f"must be {APPROVE}, or not set"))
    return said == APPROVE


def absolute_lake(lake: str) -> str:
    """Return `lake` as a URI or an absolute path: jobs and Airflow have other working directories."""
    return lake if "://" in lake else str(Path(lake).expanduser().absolute())
