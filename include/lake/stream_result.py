"""A stream's table in brief, for people, and the runs that made it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from include.fold.admission import instant_of
from include.fold.arrow_values import plain_rows
from include.lake.delta_log import dataset_of, unbroken
from include.lake.ops import newest_of, runs_of
from include.lake.paths import Lake
from include.lake.table import Table
from include.text_table import counted, cut, text_table, value_text

FIRST_ROWS = 5
DRAIN, RESTATE, REBUILD = "run_stream", "restate_interval", "rebuild_stream"


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
        first_rows=tuple(tuple(row.values()) for row in plain_rows(head)),
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
    return newest_of(_succeeded(lake, stream, [DRAIN], dag_run_id))


def succeeded_runs(lake: Lake, stream: str, dag_run_id: str) -> list[dict[str, Any]]:
    """All of a Dag run, in order; it has several if others took it along."""
    return list(_succeeded(lake, stream, [DRAIN], dag_run_id).to_pylist())


def replaced_by(lake: Lake, stream: str, dag_run_id: str | None = None) -> list[dict[str, Any]]:
    """The same of restatements and rebuilds, or all of them."""
    return list(_succeeded(lake, stream, [RESTATE, REBUILD], dag_run_id).to_pylist())


def _succeeded(lake: Lake, stream: str, jobs: Sequence[str], dag_run_id: str | None) -> pa.Table:
    return runs_of(lake, stream, jobs, outcome="succeeded", dag_run_id=dag_run_id)


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
    lines = text_table(result.columns, cells)
    if result.rows > len(cells):
        lines.append("  ...")
    return "\n".join([heading, *lines])
