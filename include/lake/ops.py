"""The `ops` tables: telemetry of runs, batches, checks and findings, written by delta-rs without a JVM.

A damaged one is moved to `set_aside/`, and a new one begun.
"""

import json
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from include.lake.columns import CHECKPOINT_INTERVAL, documented, listed, without_comments
from include.lake.delta_log import dataset_without_bounds, delta_table, move_aside, unbroken
from include.lake.errors import LakeError
from include.lake.paths import Lake

# Each table's description, and a line for each column.
_TABLES = {
    "runs": """Each run of a job, with its counts, until when the table is complete, and its error
run_id string Key: one execution of one job
job string The entry point, such as run_stream
subject string The name of the source, stream or table it worked on: of a stream's runs `subject = 'user_counts'`
dag_run_id string The Airflow Dag run; null when started by hand
started_at timestamp When the job began
ended_at timestamp When it ended
outcome string succeeded or failed
error string Why it failed; null otherwise
batches bigint Batches committed in this run
files_landed bigint Ingest: splits: files, ranges of offsets
rows_landed bigint Ingest: rows found in them; bronze + quarantined
rows_bronze bigint Ingest: rows appended to bronze
rows_quarantined bigint Ingest: rows (and whole files) refused
rows_rescued bigint Ingest: of bronze's, those with unknown fields
rows_in bigint Stream: bronze rows read; folded + late + before_initial_state + duplicate + pending's change
rows_folded bigint Stream: rows given to the state function
rows_late bigint Stream: rows behind the watermark, not folded
rows_pending bigint Stream: rows not complete yet after this run
rows_out bigint Stream: rows written to the table; of a restatement, those of its interval after it
until timestamp Stream: the table is complete before this instant of event time; of a restatement: its end
rows_before_initial_state bigint Stream: rows before the initial state's as_of, which stands for them
jvm_rss_bytes bigint Most memory the job's JVM held, RocksDB's in it
python_rss_bytes bigint Most memory its Python processes held together: the driver and the workers
rows_dead_lettered bigint Stream: of rows_folded, those that the function failed for, in dead_letters/<stream>; of a restatement or rebuild, those in the interval that it replaced
timeouts_dead_lettered bigint Stream: timeouts that it failed for
rows_duplicate bigint Stream: rows that their key had folded before (deduplicate=), not folded again
jvm_start_seconds double From its JVM's start to its own; null without one, and of another run's JVM
start timestamp Restatement, rebuild: rows emitted from here on, before `until`; null: from the beginning
generation bigint The same: the stream's; of a rebuild, its own
base_until timestamp The same: the savepoint it was replayed from; null: no savepoint
bronze_version bigint The same: the version of bronze replayed
rows_before bigint The same: the table's rows of the interval before
savepoint_id string The same: the savepoint at its end
estimated_seconds double Restate: what the plan said; null: nothing to go by
""",
    "batches": """Each batch of a stream: rows, watermark, Spark's metrics and durations
stream string Key, with generation and batch_id
generation bigint The checkpoint's generation
batch_id bigint Spark's batch id
run_id string The run (ops/runs) that committed it
committed_at timestamp When its rows were written
rows_in bigint Bronze rows read; folded + late + before_initial_state + duplicate + pending's change
rows_folded bigint Rows given to the state function
rows_late bigint Rows behind the watermark, not folded
rows_pending bigint Rows that are not complete yet after this batch
rows_out bigint Rows written to the table
buckets_touched bigint Buckets that were called
watermark timestamp The fold's watermark that this batch reached
state_bytes bigint Memory used by the state stores (Spark's metric)
durations_ms string JSON: Spark's durationMs of the batch
state_metrics string JSON: Spark's customMetrics of the operator
rows_before_initial_state bigint Rows before the initial state's as_of
late_from timestamp Event time of the earliest late row; null without any
late_to timestamp Event time of the last late row; null without any
memory_mb bigint What RocksDB might use of memory, in MiB
rows_dead_lettered bigint Of rows_folded, those that the function failed for, in dead_letters/<stream>
timeouts_dead_lettered bigint Timeouts that the function failed for
dead_letters_from timestamp The first of both, on the fold's clock; null: none
dead_letters_to timestamp The last of both; null without any
rows_duplicate bigint Rows that their key had folded before (deduplicate=), not folded again
rows_in_most bigint Of rows_in, those of the bucket that had the most
""",
    "findings": """Findings of runs and checks that people should know, and what to do
run_id string The run (ops/runs) that found it
found_at timestamp When
subject string The name of the source, stream or table it is about: of a stream `subject = 'user_counts'`
finding string What it is: a stable word, such as late_rows
severity string info, warning, or error: what nobody may count on
count bigint How many rows or keys it is about
event_time_from timestamp Event time of the first of these rows, if they are
event_time_to timestamp Event time of the last of them
detail string What it means and what to do, for people
figure double What was measured, if it has a limit
limit double The limit it was held against
unit string Of figure and limit, such as bytes, rows, share, times or days
action string What to do about it; null where detail says it
""",
    "figures": """Measurements of checkpoints by checks
subject string The stream whose checkpoint was measured
figure string checkpoint_bytes (a row for each part), files, or replay_versions: change logs that a start replays
part string metadata, offsets, commits, sources, state/0/3 for a state partition, state for what is beside these
value double What was measured
at timestamp When
run_id string The newest run (ops/runs) of the stream by then
""",
}


def _schema(text: str) -> pa.Schema:
    """Return a table's schema; all columns may be null, as those must that a later release adds."""
    return documented(listed(text.partition("\n")[2]))


DESCRIPTIONS = {name: text.partition("\n")[0] for name, text in _TABLES.items()}
SCHEMAS = {name: _schema(text) for name, text in _TABLES.items()}


log = logging.getLogger("job.ops")
# A lake makes thousands of commits to them a week, and nobody reads older versions; but each opening
# lists the log, and reads which files were replaced.
PROPERTIES = {
    **CHECKPOINT_INTERVAL,
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 1 day",
}
CLOCKS_APART = timedelta(hours=1)  # the clocks of two machines differ by less
ATTEMPTS = 20
COMMITS_BETWEEN_COMPACTIONS = 20
Result = TypeVar("Result")
P = ParamSpec("P")


def _begin_again(
    act: Callable[Concatenate[Lake, str, P], Result],
) -> Callable[Concatenate[Lake, str, P], Result]:
    """Move `ops/<name>` aside where it is damaged, and act on a new one."""

    @wraps(act)
    def on_sound_table(lake: Lake, name: str, /, *args: P.args, **named: P.kwargs) -> Result:
        for _ in range(2):  # between the two, others may have replaced what was missing
            try:
                return act(lake, name, *args, **named)
            except LakeError as error:
                if error.code != "unreadable_table":
                    raise
                why = error.message
        target = move_aside(lake, [f"ops/{name}"])
        log.warning("ops/%s is moved into %s, and a new one begun: %s", name, target, why)
        return act(lake, name, *args, **named)

    return on_sound_table


@_begin_again
def append_ops(lake: Lake, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append `rows` to `ops/<name>` in one commit, if there are any; columns not given are null."""
    if not rows:
        return
    # Without the comments: delta-rs refuses data whose comments are not those of the table.
    schema = without_comments(SCHEMAS[name])
    if unknown := {column for row in rows for column in row} - set(schema.names):
        raise ValueError(f"ops/{name} has no column {', '.join(sorted(unknown))}")
    data = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)

    def append() -> None:
        with unbroken(lake.ops(name)):
            table = _ensure_table(lake, name)
            write_deltalake(table, data, mode="append", schema_mode="merge")
            compact_now_and_then(table, lake.ops(name))

    despite_others(append)


def compact_now_and_then(written: DeltaTable, path: str) -> None:
    """Join the files of a table after every twentieth commit: each file takes a millisecond to read."""
    if written.version() % COMMITS_BETWEEN_COMPACTIONS:
        return
    with suppress(CommitFailedError):  # another stream's came between; a later one compacts
        compact(path)


def compact(path: str, target_bytes: int | None = None) -> int:
    """Join the files of a table below a target (None: delta-rs's); return the bytes that were rewritten.

    CommitFailedError when another does so at the same time, as each sets a property first: delta-rs
    (1.6.6) lets two compactions through, and then each row is there twice.
    """
    table = delta_table(path)
    claim = {"compaction": uuid.uuid4().hex}
    table.alter.set_table_properties(claim, raise_if_not_exists=False)
    removed = table.optimize.compact(target_size=target_bytes)["filesRemoved"]
    return int((json.loads(removed) if isinstance(removed, str) else removed)["totalSize"])


def despite_others(commit: Callable[[], Result]) -> Result:
    """Call `commit`, and again when another's commit to the same table came between."""
    for attempt in range(1, ATTEMPTS):
        try:
            return commit()
        except CommitFailedError:
            time.sleep(random.uniform(0.02, 0.1) * attempt)  # noqa: S311 (no secret)
    return commit()


@_begin_again
def read_ops(
    lake: Lake,
    name: str,
    where: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    wanted: pc.Expression | None = None,
) -> pa.Table:
    """Read rows of `ops/<name>` with the values of `where`, that are wanted; none when nothing has been recorded.

    `columns`: read these, and those of `where`, alone.
    """
    wanted_names = None if columns is None else {*columns, *(where or {})}
    fields = [f for f in SCHEMAS[name] if wanted_names is None or f.name in wanted_names]
    if not lake.is_delta_table(lake.ops(name)):
        return pa.schema(fields).empty_table()
    with unbroken(lake.ops(name)):
        dataset = dataset_without_bounds(lake.ops(name))
        read = None if columns is None else [column.name for column in fields]
        rows = dataset.to_table(columns=read, filter=wanted)
    # Not while reading: to prepare a filter for each of many small files costs more than it saves.
    for column, value in (where or {}).items():
        rows = rows.filter(pc.equal(rows[column], value))
    return rows


def runs_of(
    lake: Lake,
    subject: str,
    jobs: Sequence[str],
    columns: Sequence[str] | None = None,
    **where: Any,
) -> pa.Table:
    """Read the rows of `ops/runs` of a source or stream by these jobs, in order; `where`: None is any value."""
    given = {name: value for name, value in where.items() if value is not None}
    asked = columns and [*columns, "job", "ended_at"]
    rows = read_ops(lake, "runs", {"subject": subject, **given}, asked, not_ahead("ended_at"))
    return rows.filter(pc.is_in(rows["job"], pa.array(jobs))).sort_by("ended_at")


DRAIN, RESTATE, REBUILD = "run_stream", "restate_interval", "rebuild_stream"


def last_run(lake: Lake, stream: str, dag_run_id: str | None = None) -> dict[str, Any] | None:
    """Return the newest succeeded `run_stream` of `stream`, or that of one Dag run."""
    return newest_of(_succeeded(lake, stream, [DRAIN], dag_run_id))


def succeeded_runs(lake: Lake, stream: str, dag_run_id: str) -> list[dict[str, Any]]:
    """Return all succeeded `run_stream` of a Dag run, in order; it has several if siblings drained the stream."""
    return list(_succeeded(lake, stream, [DRAIN], dag_run_id).to_pylist())


def replaced_by(lake: Lake, stream: str, dag_run_id: str | None = None) -> list[dict[str, Any]]:
    """Return the succeeded restatements and rebuilds, or those of one Dag run, in order."""
    return list(_succeeded(lake, stream, [RESTATE, REBUILD], dag_run_id).to_pylist())


def _succeeded(lake: Lake, stream: str, jobs: Sequence[str], dag_run_id: str | None) -> pa.Table:
    return runs_of(lake, stream, jobs, outcome="succeeded", dag_run_id=dag_run_id)


def newest_of(rows: pa.Table) -> dict[str, Any] | None:
    """Return the last row; None of no row."""
    return next(iter(rows.slice(max(rows.num_rows - 1, 0)).to_pylist()), None)


def not_ahead(column: str) -> pc.Expression:
    """Return the filter for rows that no machine wrote with its clock ahead: they would stay the newest."""
    return pc.field(column) < pa.scalar(datetime.now(UTC) + CLOCKS_APART)


def _ensure_table(lake: Lake, name: str) -> DeltaTable:
    return DeltaTable.create(
        lake.ops(name),
        schema=SCHEMAS[name],
        mode="ignore",
        description=DESCRIPTIONS[name],
        configuration=PROPERTIES,
    )


BYTES, COUNTS = "checkpoint_bytes", ("files", "replay_versions")


class Measured(NamedTuple):
    """The figures of a checkpoint at one check."""

    at: datetime
    bytes_of: Mapping[str, int]  # by part; state/0/3 is a state partition
    files: int
    replay_versions: int

    @property
    def bytes(self) -> int:
        return sum(self.bytes_of.values())

    @property
    def partitions(self) -> Mapping[str, int]:
        """The bytes of each state partition."""
        parts = sorted(self.bytes_of, key=lambda part: (len(part), part))
        return {part: self.bytes_of[part] for part in parts if "/" in part}

    @property
    def state_bytes(self) -> int:
        """The bytes of all partitions, and of the folder `state` itself."""
        return sum(self.partitions.values()) + self.bytes_of.get("state", 0)

    @property
    def skew(self) -> float | None:
        """The largest state partition, as a multiple of the median; None where that is empty."""
        middle = median(self.partitions.values()) if self.partitions else 0
        return max(self.partitions.values()) / middle if middle else None


def record_figures(lake: Lake, subject: str, run_id: str | None, measured: Measured) -> None:
    """Append the figures of `subject`, in one commit."""
    known = {"subject": subject, "at": measured.at, "run_id": run_id}
    of_parts = measured.bytes_of.items()
    rows = [known | {"figure": BYTES, "part": part, "value": size} for part, size in of_parts]
    rows += [known | {"figure": name, "value": getattr(measured, name)} for name in COUNTS]
    append_ops(lake, "figures", rows)


def read_measured(
    lake: Lake, subject: str | None = None, since: datetime | None = None, newest: bool = False
) -> dict[str, list[Measured]]:
    """Read the figures of each subject, or of one, in order; `newest`: those of the last check alone."""
    where = {} if subject is None else {"subject": subject}
    wanted = not_ahead("at")
    if since is not None:
        wanted &= pc.field("at") >= pa.scalar(since)
    rows = read_ops(lake, "figures", where, wanted=wanted)
    if newest:
        rows = rows.filter(pc.equal(rows["at"], pc.max(rows["at"])))
    rows = rows.sort_by([("subject", "ascending"), ("at", "ascending")])
    found: dict[str, list[Measured]] = {}
    for (of, at), parts in groupby(rows.to_pylist(), itemgetter("subject", "at")):
        values = {row["part"] or row["figure"]: int(row["value"]) for row in parts}
        counts = [values.pop(name, 0) for name in COUNTS]
        found.setdefault(of, []).append(Measured(at, values, *counts))
    return found


# A finding of severity error fails the run or the Dag run that made it: a person is needed.
Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")  # the worst first


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing found; the fields are columns of `ops/findings`."""

    finding: str  # a stable word, such as late_rows
    severity: Severity
    detail: str
    count: int | None = None
    event_time_from: datetime | None = None
    event_time_to: datetime | None = None
    figure: float | None = None
    limit: float | None = None
    unit: str | None = None
    action: str | None = None


def record_findings(
    lake: Lake, run_id: str | None, subject: str, findings: Sequence[Finding]
) -> None:
    """Append `findings` about a source or stream to `ops/findings`."""
    known: dict[str, Any] = {"run_id": run_id, "found_at": datetime.now(UTC), "subject": subject}
    append_ops(lake, "findings", [known | asdict(finding) for finding in findings])


def finding_lines(rows: Iterable[Mapping[str, Any]], subject: str | None = None) -> Iterator[str]:
    """Yield a line for each row of `ops/findings`, and one for its action; `subject` is not repeated."""
    for row in rows:
        count = f" ({row['count']:,})" if row["count"] is not None else ""
        about = f" of {row['subject']}" if row.get("subject", subject) != subject else ""
        yield f"{row['severity']}: {row['finding']}{about}{count}: {row['detail']}"
        if row["action"]:
            yield f"  To do: {row['action']}"
