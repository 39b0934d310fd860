"""The steps of a stream, in order: its Dag makes a task of each, `./stateful stream` goes through them.

A step is a job of `spark_jobs`, or what needs no JVM, and the reason to leave it out this time.
What there is to do, after what, and when not is said here alone: so a schedule and a person
cannot do different things.

The Dag imports this at every parse, and reading a lake needs pyarrow and delta-rs, a second of
imports: so these are imported by the functions that need them.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from include.registry import source_named
from include.settings import Source, Stream

if TYPE_CHECKING:
    from include.lake.paths import Lake
    from include.maintain.check_checkpoint import CheckResult

RunPath = Literal["live", "backfill"]
INGEST_HERE = "include.ingest.ingest"


@dataclass(frozen=True)
class SourceRun:
    """What the step that ingests is taken for, where no stream is run."""

    lake: "Lake"
    source: Source
    until: datetime | None = None  # of its interval; by hand it has none
    path: RunPath = "live"


@dataclass(frozen=True)
class StreamRun:
    """What the steps are taken for: by a schedule, by a backfill, or by hand."""

    lake: "Lake"
    stream: Stream
    path: RunPath = "live"
    start: datetime | None = None  # of its interval; by hand it has none
    until: datetime | None = None
    is_promoting: bool = False  # a backfill with the parameter `promote`
    # How many runs with these logical dates wait; whether one of another stream has begun. By hand none.
    queued: Callable[[Sequence[datetime]], int] = lambda dates: 0
    is_due: Callable[[Stream], bool] = lambda stream: False
    dag_run_id: str | None = None
    is_dry: bool = False  # nothing is changed or recorded
    is_compacting: bool = False  # whatever would be gained

    @cached_property
    def source(self) -> Source:
        """What the stream reads."""
        return source_named(self.stream.source)

    @cached_property
    def checked(self) -> "CheckResult":
        """The state of the checkpoint when it was first asked for: after the stream's run."""
        from include.maintain.check_checkpoint import check_checkpoint

        return check_checkpoint(self.lake, self.stream)


Group = Literal["run", "backfill", "care"]  # as the Dag shows them together


class Start(NamedTuple):
    """A job's work, which is known only when it starts."""

    is_done: bool = False  # by another run: nothing
    command: Sequence[str] = ()  # that does it without a JVM, with the job's arguments
    arguments: Sequence[str] = ()  # more of them


class Told(NamedTuple):
    """What a step without a job has to say, and what of it needs a person."""

    text: str
    wrong: str | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: after which others it comes, and why it would be left out."""

    name: str
    group: Group
    # None: it is to be taken. SettingsError: it cannot be, and no retry helps.
    why_not: Callable[[Any], str | None] = lambda run: None
    path: RunPath | None = None  # None: of both
    after: tuple[str, ...] = ()  # left out when one of these was
    behind: tuple[str, ...] = ()  # waits for these, taken or not
    # Of a step that takes others' work along: until when to wait; whether one has done this run's.
    wait: Callable[[Any], None] = lambda run: None
    is_done: Callable[[Any], bool] = lambda run: False

    def is_of(self, run: StreamRun | SourceRun) -> bool:
        """Whether runs of this path have the step at all."""
        return self.path in (None, run.path)


@dataclass(frozen=True, kw_only=True)
class JobStep(Step):
    """A step that spark-submit runs, unless it is little: a file of `spark_jobs`, and its arguments."""

    job: str
    is_of_source: bool = False  # its pool is the source's, and it has no state
    has_interval: bool = False
    # A module that does the same without a JVM, with the same arguments; and when it is better.
    here: str = ""
    is_little: Callable[[Any], bool] = lambda run: False
    # The job's arguments for others' work that it takes along, while the context lasts.
    along: Callable[[StreamRun], AbstractContextManager[list[str]]] = lambda run: nullcontext([])

    @contextmanager
    def start(self, run: Any) -> Iterator[Start]:
        """How to do it: not at all, without a JVM, or by its job, which takes others' work along while
        the context lasts."""
        if self.is_done(run):
            yield Start(is_done=True)
        elif self.is_little(run):
            yield Start(command=[sys.executable, "-m", self.here])
        else:
            with self.along(run) as arguments:
                yield Start(arguments=arguments)

    def subject(self, stream: Stream) -> str:
        """Which of its own names the job is told."""
        return stream.source if self.is_of_source else stream.name

    def arguments(self, lake: str, subject: str, start: str = "", until: str = "") -> list[str]:
        """For the job's parser. The interval's ends may be empty, or templates of Airflow."""
        if self.is_of_source:
            end = ["--interval-end", until] if until else []
            return ["--source", subject, "--lake", lake, *end]
        interval = ["--from", start, "--until", until] if self.has_interval else []
        return ["--stream", subject, "--lake", lake, *interval]


@dataclass(frozen=True, kw_only=True)
class LookStep(Step):
    """A step that reads and records, without a JVM."""

    look: Callable[[StreamRun], Told]


def _why_not_ingest(run: StreamRun | SourceRun) -> str | None:
    """When no file waits in landing and no clock row is due."""
    from include.ingest.clock import why_not_ingest

    return why_not_ingest(run.lake, run.source, run.until, datetime.now(UTC))


def _is_little(run: StreamRun | SourceRun) -> bool:
    from include.ingest.origin import lag_of_run

    return lag_of_run(run.lake, run.source).is_little


def _why_not_run_stream(run: StreamRun) -> str | None:
    from include.stream.open_stream import has_waiting_rows

    if has_waiting_rows(run.lake, run.stream):
        return None
    return f"{run.stream.name} has read all of bronze/{run.stream.source}"


def _has_run(run: StreamRun) -> bool:
    """Whether a run for this Dag run has read all there is: another stream's JVM, or a first try."""
    from include.lake.stream_result import last_run

    if run.dag_run_id is None:
        return False
    done = last_run(run.lake, run.stream.name, run.dag_run_id)
    return done is not None and _why_not_run_stream(run) is not None


def _wait_while_led(run: StreamRun) -> None:
    from include.stream.shared_jvm import wait_while_led

    wait_while_led(run.lake, run.stream)


@contextmanager
def _streams_along(run: StreamRun) -> Iterator[list[str]]:
    """Of the streams whose small runs share this one's JVM; theirs wait for the body's end."""
    from include.stream.shared_jvm import lead

    with lead(run.lake, run.stream, run.is_due, jvm_of=partial(_jvm_of, run.lake)) as others:
        yield ["--also", *(other.name for other in others)] if others else []


def _jvm_of(lake: "Lake", stream: Stream) -> tuple[object, ...]:
    """What the JVM of its `run_stream` would have but once: its end, and the memory of its stores."""
    from include.maintain.tune_rocksdb import OF_PROCESS, run_settings

    settings = run_settings(lake, stream)
    return stream.timeout, *(settings.get(name) for name in OF_PROCESS)


def _why_not_recompute(run: StreamRun) -> str | None:
    """Never; SettingsError, without a JVM, when live has not settled the interval yet."""
    from include.stream.plan_recompute import check_settled

    assert run.until is not None  # a backfill's runs have an interval
    check_settled(run.lake, run.stream, run.until)
    return None


def _is_recomputed(run: StreamRun) -> bool:
    """Whether the table is right there, as when an earlier interval's run has recomputed this one, too."""
    from include.stream.plan_recompute import has_nothing_to_change

    assert run.start is not None  # a backfill's runs have an interval
    assert run.until is not None
    return has_nothing_to_change(run.lake, run.stream, run.start, until=run.until)


@contextmanager
def _intervals_along(run: StreamRun) -> Iterator[list[str]]:
    """A later end, of the next intervals whose runs wait for the stream's pool."""
    from include.stream.plan_recompute import last_waiting_end

    assert run.until is not None
    end = last_waiting_end(run.lake, run.stream, run.until, queued=run.queued)
    yield ["--until", end.isoformat()]  # the job's parser takes the last of two


def _why_not_promote(run: StreamRun) -> str | None:
    """When the backfill does not promote, or another of its runs is to."""
    from include.stream.plan_recompute import why_not_promote

    if not run.is_promoting:
        return "this run is no backfill with the parameter promote"
    assert run.start is not None
    return why_not_promote(run.lake, run.stream, run.start, queued=run.queued)


def _check(run: StreamRun) -> Told:
    """Figures and findings of the checkpoint, into `ops`."""
    from include.maintain.check_checkpoint import format_check, record_check

    if not run.is_dry:
        record_check(run.lake, run.checked)
    errors = [finding.detail for finding in run.checked.findings if finding.severity == "error"]
    return Told(format_check(run.checked), "; ".join(errors) or None)


def _why_not_compact(run: StreamRun) -> str | None:
    """When a compaction would gain nothing worth a JVM."""
    if run.is_dry:
        return "nothing is changed"
    return None if run.is_compacting else run.checked.why_not_compact


def _tune(run: StreamRun) -> Told:
    """At most one change of RocksDB's memory, tried out by the next runs."""
    from include.maintain.tune_rocksdb import record_change, tune_rocksdb

    outcome = tune_rocksdb(run.lake, run.stream)
    if not run.is_dry:
        record_change(run.lake, run.stream, outcome)
    return Told(f"the next run has {outcome.memory_mb} MiB for RocksDB: {outcome.why}")


INGEST = JobStep(
    name="ingest",
    group="run",
    why_not=_why_not_ingest,
    job="ingest_source",
    is_of_source=True,
    here=INGEST_HERE,
    is_little=_is_little,
)
STEPS: tuple[JobStep | LookStep, ...] = (
    INGEST,
    JobStep(
        name="run_stream",
        group="run",
        path="live",
        behind=("ingest",),  # that nothing has landed says nothing of what waits in bronze
        why_not=_why_not_run_stream,
        job="run_stream",
        is_done=_has_run,
        wait=_wait_while_led,
        along=_streams_along,
    ),
    JobStep(
        name="recompute_interval",
        group="backfill",
        path="backfill",
        behind=("ingest",),
        why_not=_why_not_recompute,
        job="recompute_interval",
        has_interval=True,
        is_done=_is_recomputed,
        along=_intervals_along,
    ),
    JobStep(
        name="promote",
        group="backfill",
        path="backfill",
        after=("recompute_interval",),
        why_not=_why_not_promote,
        job="reseed_stream",
    ),
    LookStep(
        name="check_checkpoint",
        group="care",
        path="live",
        after=("run_stream",),
        look=_check,
    ),
    JobStep(
        name="compact_state",
        group="care",
        path="live",
        after=("check_checkpoint",),
        why_not=_why_not_compact,
        job="compact_state",
    ),
    LookStep(
        name="tune_rocksdb",
        group="care",
        path="live",
        after=("check_checkpoint",),
        # All of them: it is the last, and when one failed its Dag run is red by it.
        behind=("compact_state", "recompute_interval", "promote"),
        look=_tune,
    ),
)
