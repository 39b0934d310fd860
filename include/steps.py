"""The steps of a stream, in order: its Dag makes a task of each, `./stateful stream` takes them all.

A step is a job of `spark_jobs` or a function without a JVM, with the reason to leave it out. Small
runs of a source's streams that are due together share one JVM: the first one drains the others
after its own stream, and these find nothing left to do.

The Dag imports this at every parse: functions import what reads a lake, which takes a second.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from include.registry import declared, source_named
from include.settings import Source, Stream

if TYPE_CHECKING:
    from include.lake.paths import Lake
    from include.maintain.check_checkpoint import CheckResult

log = logging.getLogger("job")
RunPath = Literal["live", "downstream", "backfill"]
INGEST_HERE = "include.ingest.ingest"


@dataclass(frozen=True)
class SourceRun:
    """The argument of the step that ingests a source without running a stream."""

    lake: "Lake"
    source: Source
    until: datetime | None = None  # of its interval; by hand it has none
    path: RunPath = "live"


@dataclass(frozen=True)
class StreamRun:
    """The argument of the steps of a stream: a run by schedule, by a backfill, by hand, or to mend what is behind a table."""

    lake: "Lake"
    stream: Stream
    path: RunPath = "live"
    start: datetime | None = None  # of its interval; by hand it has none
    until: datetime | None = None
    is_rebuilding: bool = False  # a backfill with the parameter `rebuild`
    # The number of waiting runs of these logical dates.
    queued: Callable[[Sequence[datetime]], int] = lambda dates: 0
    # The number of those whose restatement has not begun.
    unrestated: Callable[[Sequence[datetime]], int] = lambda dates: 0
    # True if a run of another stream has begun.
    is_due: Callable[[Stream], bool] = lambda stream: False
    dag_run_id: str | None = None
    is_dry: bool = False  # nothing is changed or recorded
    is_compacting: bool = False  # also when no compaction is due

    @cached_property
    def source(self) -> Source:
        """The source that the stream reads."""
        return source_named(self.stream.source)

    @cached_property
    def checked(self) -> "CheckResult":
        """The check of the checkpoint, made at its first use: after the stream's run."""
        from include.maintain.check_checkpoint import check_checkpoint

        return check_checkpoint(self.lake, self.stream)


Group = Literal["run", "backfill", "maintenance"]  # as the Dag shows them together


class Start(NamedTuple):
    """The work of a job, which is known when it starts."""

    is_done: bool = False  # by another run: nothing is left to do
    command: Sequence[str] = ()  # does it without Spark, with the arguments of spark-submit
    arguments: Sequence[str] = ()  # after those for the subject and the lake


class Report(NamedTuple):
    """The result of a step without a job, and what of it needs a person."""

    text: str
    wrong: str | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: its order, the reason to leave it out, and the function or job that does it."""

    name: str
    group: Group
    paths: tuple[RunPath, ...] = ("live", "downstream")  # of the runs that have it
    # The reason to leave it out, or None; SettingsError when it cannot be taken and no retry helps.
    why_not: Callable[[Any], str | None] = lambda run: None
    after: tuple[str, ...] = ()  # left out when one of these was
    behind: tuple[str, ...] = ()  # waits for these, taken or not
    look: Callable[[StreamRun], Report] | None = None  # does it without a JVM
    job: str = ""  # else this file of `spark_jobs`, ...
    # ... with the work that is known at its start; the context lasts as long as the job.
    start: Callable[[Any], AbstractContextManager[Start]] = lambda run: nullcontext(Start())
    is_of_source: bool = False  # its pool is the source's, and it has no state

    def is_of(self, run: StreamRun | SourceRun) -> bool:
        """True if runs of this path have the step."""
        return run.path in self.paths

    def arguments(self, lake: str, subject: str) -> list[str]:
        """The job's arguments for the source or stream, and the lake."""
        return ["--source" if self.is_of_source else "--stream", subject, "--lake", lake]


def _why_not_ingest(run: StreamRun | SourceRun) -> str | None:
    """The reason not to ingest: nothing waits, and no heartbeat is due."""
    from include.ingest.ingest import why_not_ingest

    return why_not_ingest(run.lake, run.source, run.until, datetime.now(UTC))


def _start_ingest(run: StreamRun | SourceRun) -> AbstractContextManager[Start]:
    """Ingest without a JVM when that is as fast."""
    from include.ingest.source_connector import lag_of_run

    is_little = lag_of_run(run.lake, run.source).is_little
    here = [sys.executable, "-m", INGEST_HERE] if is_little else []
    end = ["--interval-end", run.until.isoformat()] if run.until else []
    return nullcontext(Start(command=here, arguments=end))


def _why_not_run_stream(run: StreamRun) -> str | None:
    """The reason not to run: nothing waits, and no other stream's JVM has done this run, which is then
    checked."""
    if _has_waiting_rows(run) or _has_run(run):
        return None
    return f"{run.stream.name} has read all of bronze/{run.stream.source}"


def _has_waiting_rows(run: StreamRun) -> bool:
    from include.stream.open_stream import has_waiting_rows

    return has_waiting_rows(run.lake, run.stream)


def _has_run(run: StreamRun) -> bool:
    from include.lake.ops import last_run

    dag_run = run.dag_run_id
    return dag_run is not None and last_run(run.lake, run.stream.name, dag_run) is not None


@contextmanager
def _start_run_stream(run: StreamRun) -> Iterator[Start]:
    """Run the stream, with the small runs of the source's other streams that are due."""
    from include.lake.lease import has_leases, hold_lease

    others = [each for each in declared().streams if each.source == run.stream.source]
    others = [each for each in others if each.name != run.stream.name and run.is_due(each)]
    memory = _memory_of_small(run.lake, run.stream) if others and has_leases(run.lake) else None
    if memory is None:
        yield Start(is_done=_has_run(run) and not _has_waiting_rows(run))
        return
    with hold_lease(run.lake, f"jvm-{run.stream.source}", run.stream.timeout):
        alike = [
            each.name
            for each in others
            if run.is_due(each) and _memory_of_small(run.lake, each) == memory
        ]
        is_done = _has_run(run) and not _has_waiting_rows(run)
        yield Start(is_done, arguments=["--also", *alike] if alike else ())


def _memory_of_small(lake: "Lake", stream: Stream) -> tuple[str | None, ...] | None:
    """The memory of RocksDB, which a JVM has but once, in a run that is sure to be small; else None."""
    from deltalake.exceptions import DeltaError

    from include.lake.errors import StatefulError
    from include.maintain.tune_rocksdb import OF_PROCESS, run_settings
    from include.stream.open_stream import is_small, open_stream

    try:
        settings = run_settings(lake, stream)
        is_shared = is_small(open_stream(lake, stream))
    except (DeltaError, OSError, StatefulError) as error:
        log.warning("%s has its run to itself: %s", stream.name, error)
        return None
    return tuple(settings.get(name) for name in OF_PROCESS) if is_shared else None


def _why_not_restate(run: StreamRun) -> str | None:
    """None; SettingsError, without a JVM, when the interval is not complete yet. Downstream the reason not to rebuild."""
    from include.stream.restate_plan import check_complete, why_not_mend

    if run.path == "downstream":  # `rebuild` is skipped with it, and costs no process
        return why_not_mend(run.lake, run.stream)
    assert run.until is not None  # a backfill's runs have an interval
    check_complete(run.lake, run.stream, run.until)
    return None


def _start_restate(run: StreamRun) -> AbstractContextManager[Start]:
    """Restate the interval with the next ones whose runs wait: these then find the table right."""
    if run.path == "downstream":
        return nullcontext(Start(is_done=True))
    from include.stream.open_stream import open_stream
    from include.stream.restate_plan import has_nothing_to_change, last_waiting_end

    assert run.start is not None  # a backfill's runs have an interval
    assert run.until is not None
    if has_nothing_to_change(run.lake, run.stream, run.start, until=run.until):
        return nullcontext(Start(is_done=True))
    opened = open_stream(run.lake, run.stream)
    end = last_waiting_end(opened, run.start, run.until, waiting=run.unrestated)
    interval = ["--from", run.start.isoformat(), "--until", end.isoformat()]
    return nullcontext(Start(arguments=interval))


def _why_not_rebuild(run: StreamRun) -> str | None:
    """The reason not to rebuild: the table is right, the backfill does not, or another of its runs does."""
    from include.stream.restate_plan import why_not_rebuild

    if run.path == "downstream":
        return None  # `restate_interval` has looked
    if not run.is_rebuilding:
        return "this run is no backfill with the parameter rebuild"
    assert run.start is not None
    return why_not_rebuild(run.lake, run.stream, run.start, queued=run.queued)


def _check(run: StreamRun) -> Report:
    """Check the checkpoint, and record figures and findings in `ops`."""
    from include.maintain.check_checkpoint import format_check, record_check

    if not run.is_dry:
        record_check(run.lake, run.checked)
    errors = [finding.detail for finding in run.checked.findings if finding.severity == "error"]
    return Report(format_check(run.checked), "; ".join(errors) or None)


def _why_not_compact(run: StreamRun) -> str | None:
    """The reason not to compact: nothing would be gained that is worth a JVM."""
    if run.is_dry:
        return "nothing is changed"
    return None if run.is_compacting else run.checked.why_not_compact


def _tune(run: StreamRun) -> Report:
    """Make at most one change of RocksDB's memory, which the next runs try."""
    from include.maintain.tune_rocksdb import record_change, tune_rocksdb

    outcome = tune_rocksdb(run.lake, run.stream)
    if not run.is_dry:
        record_change(run.lake, run.stream, outcome)
    return Report(f"the next run has {outcome.memory_mb} MiB for RocksDB: {outcome.why}")


INGEST = Step(
    name="ingest",
    group="run",
    paths=("live", "downstream", "backfill"),
    why_not=_why_not_ingest,
    job="ingest_source",
    is_of_source=True,
    start=_start_ingest,
)
STEPS: tuple[Step, ...] = (
    INGEST,
    Step(
        name="run_stream",
        group="run",
        behind=("ingest",),  # also when nothing has landed: rows may wait in bronze
        why_not=_why_not_run_stream,
        job="run_stream",
        start=_start_run_stream,
    ),
    Step(
        name="restate_interval",
        group="backfill",
        paths=("downstream", "backfill"),
        behind=("ingest",),
        why_not=_why_not_restate,
        job="restate_interval",
        start=_start_restate,
    ),
    Step(
        name="rebuild",
        group="backfill",
        paths=("downstream", "backfill"),
        after=("restate_interval",),
        why_not=_why_not_rebuild,
        job="rebuild_stream",
    ),
    Step(
        name="check_checkpoint",
        group="maintenance",
        after=("run_stream",),
        behind=("rebuild",),
        look=_check,
    ),
    Step(
        name="compact_state",
        group="maintenance",
        after=("check_checkpoint",),
        why_not=_why_not_compact,
        job="compact_state",
    ),
    Step(
        name="tune_rocksdb",
        group="maintenance",
        after=("check_checkpoint",),
        # As the last step it fails, and with it the Dag run, when one of these did.
        behind=("compact_state", "restate_interval", "rebuild"),
        look=_tune,
    ),
)
