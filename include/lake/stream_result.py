"""A stream's results for people and for the Asset; its table of dead letters, and how a killed job's rows in it
are put back."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import instant_of
from include.fold.arrow_values import plain_values
from include.fold.product_table import PROPERTIES
from include.lake.columns import Column, create_if_absent
from include.lake.delta_log import dataset_of, unbroken
from include.lake.generations import read_generations
from include.lake.ops import newest_row, not_ahead, read_ops, update_ops
from include.lake.paths import Lake
from include.lake.table import Record, Table
from include.text_table import counted, cut, text_table, value_text

FIRST_ROWS = 5
DRAIN, RECOMPUTE, RESEED = "run_stream", "recompute_interval", "reseed_stream"


@dataclass(frozen=True)
class StreamResult:
    """A stream's table in brief."""

    stream: str
    rows: int
    until: datetime | None
    columns: tuple[str, ...]
    first_rows: tuple[tuple[Any, ...], ...]
    duplicates: int = 0  # rows that its last run has not folded again


def read_result(lake: Lake, stream: str) -> StreamResult | None:
    """The table of `stream` as it is now; None before its first run."""
    if not lake.is_delta_table(lake.table(stream)):
        return None
    with unbroken(lake.table(stream)):
        dataset = dataset_of(lake.table(stream))
        head, rows = dataset.head(FIRST_ROWS), dataset.count_rows()
    run = last_run(lake, stream)
    return StreamResult(
        stream=stream,
        rows=rows,
        until=complete_until(lake, stream),
        columns=tuple(head.column_names),
        first_rows=tuple(zip(*map(plain_values, head.columns), strict=True)),
        duplicates=(run["rows_duplicate"] or 0) if run else 0,
    )


def complete_until(lake: Lake, stream: str) -> datetime | None:
    """Before which instant the table of `stream` is complete, by its newest record; None: none."""
    path = lake.table(stream)
    told = Table.read(lake, path).newest_record() if lake.is_delta_table(path) else None
    until_us = (told or {}).get("complete_until_us")
    return None if until_us is None else instant_of(until_us)


def last_run(lake: Lake, stream: str, dag_run_id: str | None = None) -> dict[str, Any] | None:
    """The newest succeeded `run_stream` of `stream` in ops/runs, or that of one Dag run."""
    return newest_row(_succeeded(lake, stream, dag_run_id), "ended_at")


def succeeded_runs(lake: Lake, stream: str, dag_run_id: str | None = None) -> list[dict[str, Any]]:
    """All of them, or those of one Dag run, in order; it has several if others took it along."""
    return list(_succeeded(lake, stream, dag_run_id).to_pylist())


def replaced_by(lake: Lake, stream: str, dag_run_id: str | None = None) -> list[dict[str, Any]]:
    """The same of its recomputes and reseeds."""
    return list(_succeeded(lake, stream, dag_run_id, RECOMPUTE, RESEED).to_pylist())


def _succeeded(lake: Lake, stream: str, dag_run_id: str | None, *jobs: str) -> pa.Table:
    where = {"subject": stream, "outcome": "succeeded"}
    if dag_run_id is not None:
        where["dag_run_id"] = dag_run_id
    rows = read_ops(lake, "runs", where, before=("ended_at", not_ahead()))
    return rows.filter(pc.is_in(rows["job"], pa.array(jobs or [DRAIN]))).sort_by("ended_at")


def untold(lake: Lake, stream: str, dag_run_id: str, is_of_interval: bool) -> list[dict[str, Any]]:
    """Of the drains or the recomputes and reseeds of a Dag run, what no event has told, in order."""
    rows = (replaced_by if is_of_interval else succeeded_runs)(lake, stream, dag_run_id)
    return [row for row in rows if row["told_at"] is None]


def mark_told(lake: Lake, stream: str, dag_run_id: str, is_of_interval: bool) -> None:
    """That the Asset's event has told what was `untold`: not again, if the Dag run is cleared."""
    rows, now = untold(lake, stream, dag_run_id, is_of_interval), datetime.now(UTC)
    told = [{"run_id": row["run_id"], "told_at": now} for row in rows]
    update_ops(lake, "runs", ["run_id"], told)


def asset_extra(lake: Lake, stream: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the stream's Asset event tells its readers of `runs`, in order; plain JSON values.

    Rows and findings are those of all of them; the rest is as it is now, also where they are old
    and others have come since.
    """
    until = complete_until(lake, stream)
    return {
        "run_id": runs[-1]["run_id"],
        "rows": sum(run["rows_out"] or 0 for run in runs),
        "rows_late": sum(run["rows_late"] or 0 for run in runs),
        "rows_duplicate": sum(run["rows_duplicate"] or 0 for run in runs),
        "complete_until": until and until.isoformat(),
        "generation": read_generations(lake, stream).number,
        "state_bytes": measured_bytes(lake, stream=stream, part="state"),
        "findings": [
            {"finding": row["finding"], "severity": row["severity"], "detail": row["detail"]}
            for run in runs
            for row in read_ops(lake, "findings", {"run_id": run["run_id"]}).to_pylist()
        ],
    }


def recompute_extra(lake: Lake, stream: str, dag_run_id: str) -> dict[str, Any] | None:
    """What the Asset event of a backfill's Dag run tells; None when that is nothing new.

    Of its recompute, if it made one, `interval` is the start and the end that it is before, beside counts
    of rows. `promoted_to` is the generation, if it was promoted.
    """
    rows = replaced_by(lake, stream, dag_run_id)
    if not untold(lake, stream, dag_run_id, is_of_interval=True):
        return None
    until = complete_until(lake, stream)
    extra = {"run_id": rows[-1]["run_id"], "complete_until": until and until.isoformat()}
    if (row := next((row for row in reversed(rows) if row["job"] == RECOMPUTE), None)) is not None:
        counts = ("rows_before", "rows_removed", "rows_added")
        extra |= {count: row[count] for count in ("run_id", *counts)}
        extra |= {"interval": [row["start"].isoformat(), row["until"].isoformat()]}
        extra |= {"rows_read": row["rows_in"], "rows_after": row["rows_out"]}
        extra |= {"savepoint": row["savepoint_id"]}
    if rows[-1]["job"] == RESEED:
        extra |= {"promoted_to": rows[-1]["generation"]}
    return extra


def measured_bytes(lake: Lake, **where: Any) -> int | None:
    """Bytes of the parts of a checkpoint as they were last measured; None when they never were."""
    columns, before = ("measured_at", "bytes"), ("measured_at", not_ahead())
    sizes = read_ops(lake, "checkpoint_sizes", where, columns, before=before)
    newest = sizes.filter(pc.equal(sizes["measured_at"], pc.max(sizes["measured_at"])))
    found: int | None = pc.sum(newest["bytes"]).as_py()
    return found


def format_result(result: StreamResult, most: int | None = None) -> str:
    """`result` as a short table; its values with `most` characters at most, if that is said."""
    until = f"{result.until:%Y-%m-%d %H:%M:%S} UTC" if result.until else "nothing yet"
    heading = f"{result.stream}: {counted(result.rows, 'row')}, complete until {until}"
    if result.duplicates:
        heading += f"; {counted(result.duplicates, 'duplicate')} in the last run"
    if not result.first_rows:
        return heading
    texts = [tuple(map(value_text, row)) for row in result.first_rows]
    cells = [tuple(cut(text, most) if most else text for text in row) for row in texts]
    lines = text_table(result.columns, cells, left=range(len(result.columns)))
    if result.rows > len(cells):
        lines.append("  ...")
    return "\n".join([heading, *lines])


AT, AT_DATE = "at", "at_date"
COLUMNS = (
    Column("key", "string", "Key, with at and number: the stream's key, as text"),
    Column(AT, "timestamp", "When the event (or timeout) was, on the stream's clock, UTC"),
    Column("number", "int", "Which of those of the key at that instant, from 0"),
    Column("cause", "string", "event, or timeout: what the function was called for"),
    Column("event", "string", "The event as the function got it, as JSON; cut at 16 KiB"),
    Column("error", "string", "The class of the exception"),
    Column("message", "string", "Its text; cut at 1 KiB"),
    Column(
        "traceback",
        "string",
        "The calls from the state function on, cut at 4 KiB; null when the function had returned, "
        "and what it returned was wrong",
    ),
    Column(AT_DATE, "date", "Partition: the date of at"),
)
MOST_KEYS = 1_000  # that are remembered of one batch
# In a commit's record: a number, more than in any earlier one, and of a batch what has written it.
NUMBER, APP, BATCH = "number", "app", "batch"


class RangeChange(NamedTuple):
    """Rows of a range before and after, and how many of them differ."""

    before: int
    after: int
    removed: int
    added: int


class Summary(NamedTuple):
    """What some dead letters come to."""

    events: int
    timeouts: int
    first_us: int
    last_us: int
    by_key: Counter[str]  # of the MOST_KEYS keys with the most of them


def dead_letters_number(lake: Lake, stream: str) -> int:
    """What the newest of our commits to the table of a stream is numbered by; 0 where there is none.

    LakeError when others have changed it since, or its log cannot be read.
    """
    return int(dead_letters_record(lake, stream).get(NUMBER, 0))


def dead_letters_record(lake: Lake, stream: str) -> Record:
    """The newest record of the table of a stream; empty where there is none. LakeError as above."""
    path = lake.dead_letters(stream)
    told = Table.read(lake, path).record() if lake.is_delta_table(path) else None
    return told or {}


def has_batch(lake: Lake, stream: str, app_id: str, batch_id: int) -> bool:
    """Whether the newest commit of ours to the table is of this batch, or a later one, of `app_id`."""
    told = dead_letters_record(lake, stream)
    return told.get(APP) == app_id and told[BATCH] >= batch_id


def put_back_dead_letters(lake: Lake, stream: str, number: int) -> None:
    """Undo what a rebuild or restatement has put in the place of dead letters, and was killed before it
    committed the table: `number` is of the commit that the table's record counts on."""
    told = dead_letters_record(lake, stream)
    if told.get(NUMBER, 0) <= number or APP in told:
        return
    with unbroken(lake.dead_letters(stream)):
        table = Table.open(lake, lake.dead_letters(stream))
        table.restore(lambda record: int(record[NUMBER]) <= number, {NUMBER: number})


def ensure_table(lake: Lake, stream: str) -> None:
    """Make the table of a stream, where it is not there yet: it is made with its first row."""
    comment = f"Events and timeouts that the state function of {stream} failed for"
    create_if_absent(lake.dead_letters(stream), COLUMNS, comment, PROPERTIES, [AT_DATE])
