"""The `ops` tables: what happened, for people and for the Dags. One that is damaged is moved aside, and
begun anew: they are telemetry.

Written by delta-rs only, so that a task without a JVM can write them, and so that a
row of a few numbers costs milliseconds and not a Spark job. The schemas are in
`include/lake/ops_schemas.py`.
"""

import json
import logging
import random
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import reduce, wraps
from operator import and_
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from include.lake.aside import move_aside
from include.lake.columns import CHECKPOINT_INTERVAL
from include.lake.delta_log import dataset_without_bounds, delta_table, unbroken
from include.lake.errors import LakeError
from include.lake.lease import check_held
from include.lake.ops_schemas import DESCRIPTIONS, SCHEMAS
from include.lake.paths import Lake

log = logging.getLogger("job.ops")
# A lake makes thousands of commits to them a week, and no reader takes an older version. What is in
# the log is listed, and which files were replaced is read, each time that one of them is opened.
PROPERTIES = {
    **CHECKPOINT_INTERVAL,
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 1 day",
}
CLOCKS_APART = timedelta(hours=1)  # no two machines that are looked after differ by as much
ATTEMPTS = 20
COMMITS_BETWEEN_COMPACTIONS = 20
Result = TypeVar("Result")
P = ParamSpec("P")


def _begun_anew(
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
        log.warning("ops/%s is moved into %s, and begun anew: %s", name, target, why)
        return act(lake, name, *args, **named)

    return on_sound_table


@_begun_anew
def append_ops(lake: Lake, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append `rows` to `ops/<name>` in one commit, if there are any; columns not given are null."""
    if not rows:
        return
    schema = SCHEMAS[name]
    unknown = {column for row in rows for column in row} - set(schema.names)
    if unknown:
        raise ValueError(f"ops/{name} has no column {', '.join(sorted(unknown))}")
    data = _table_of(rows, schema)

    def append() -> None:
        table = _ensure_table(lake, name)
        with unbroken(lake.ops(name)):
            write_deltalake(table, with_all_columns(data, table), mode="append")
            compact_now_and_then(table, lake.ops(name))

    despite_others(append)


def compact_now_and_then(written: DeltaTable, path: str) -> None:
    """Each commit is a file, and reading takes a millisecond a file: join them in time.

    `written`: the table at `path`, as of a commit that was just made to it.
    """
    if written.version() % COMMITS_BETWEEN_COMPACTIONS:
        return
    with suppress(CommitFailedError):  # another stream's came between; a later one compacts
        compact(path)


def compact(path: str, target_bytes: int | None = None) -> int:
    """Join the files of a table below a target (None: delta-rs's); the bytes that were rewritten.

    CommitFailedError when somebody else does so just now. That is seen by a property that each
    sets first: of two compactions alone delta-rs (1.6.6) lets both through, and then each row is
    there twice.
    """
    table = delta_table(path)
    claim = {"compaction": uuid.uuid4().hex}
    table.alter.set_table_properties(claim, raise_if_not_exists=False)
    removed = table.optimize.compact(target_size=target_bytes)["filesRemoved"]
    return int((json.loads(removed) if isinstance(removed, str) else removed)["totalSize"])


def _table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    # Without the comments: delta-rs refuses data whose comments are not those of the table.
    plain = pa.schema([field.remove_metadata() for field in schema])
    return pa.Table.from_pylist([dict(row) for row in rows], schema=plain)


def with_all_columns(data: pa.Table, table: DeltaTable) -> pa.Table:
    """With nulls for columns that others have given the table, such as another release."""
    for field in pa.schema(table.schema().to_arrow()):
        if field.name not in data.column_names:
            data = data.append_column(field.name, pa.nulls(data.num_rows, field.type))
    return data


@_begun_anew
def update_ops(
    lake: Lake, name: str, key: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Fill columns of rows that are already in `ops/<name>`, found by their `key` columns."""
    if not rows:
        return
    data = _table_of(rows, pa.schema([SCHEMAS[name].field(column) for column in rows[0]]))
    values = {column: f"source.`{column}`" for column in rows[0]}

    def merge() -> None:
        table = _ensure_table(lake, name)
        check_held()
        with unbroken(lake.ops(name)):
            table.merge(
                data,
                predicate=" AND ".join(f"target.`{column}` = source.`{column}`" for column in key),
                source_alias="source",
                target_alias="target",
            ).when_matched_update(values).execute()

    despite_others(merge)


def despite_others(commit: Callable[[], Result]) -> Result:
    """`commit`, again when another stream's commit to the same table came between.

    All streams share these tables. Both writes may be repeated: an append has not happened, and an
    update sets the same again.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return commit()
        except CommitFailedError:
            # Not in step with whoever was faster.
            time.sleep(random.uniform(0.02, 0.1) * attempt)  # noqa: S311 (no secret)
    return commit()


@_begun_anew
def read_ops(
    lake: Lake,
    name: str,
    where: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    since: tuple[str, datetime] | None = None,
    before: tuple[str, datetime] | None = None,
    wanted: pc.Expression | None = None,
) -> pa.Table:
    """Rows of `ops/<name>`, of those columns' values; none when nothing has been recorded.

    Of `columns`, and those of `where`, only; `since`: an instant's column, and its least value;
    `before`: such a column, and what its values are less than; `wanted`: any other condition.
    """
    fields = _fields(name, None if columns is None else {*columns, *(where or {})})
    if not lake.is_delta_table(lake.ops(name)):
        return pa.schema(fields).empty_table()
    held = [] if wanted is None else [wanted]
    held += [] if since is None else [pc.field(since[0]) >= pa.scalar(since[1])]
    held += [] if before is None else [pc.field(before[0]) < pa.scalar(before[1])]
    with unbroken(lake.ops(name)):
        dataset = dataset_without_bounds(lake.ops(name))
        read = None if columns is None else [column.name for column in fields]
        rows = dataset.to_table(columns=read, filter=reduce(and_, held) if held else None)
    # Not while it is read: to prepare that for each of many small files costs more than it spares.
    for column, value in (where or {}).items():
        rows = rows.filter(pc.equal(rows[column], value))
    return rows


def newest_row(rows: pa.Table, by: str) -> dict[str, Any] | None:
    """The row with the largest value of that column; None of no row. Of the others, of which there
    are more with each run, no Python object is made."""
    newest = rows.filter(pc.equal(rows[by], pc.max(rows[by])))
    return next(iter(newest.slice(0, 1).to_pylist()), None)


def not_ahead() -> datetime:
    """What the instants of rows are less than, but for those of a machine whose clock was ahead.

    They would be the newest until that time has come.
    """
    return datetime.now(UTC) + CLOCKS_APART


def _fields(name: str, columns: Collection[str] | None) -> list[pa.Field]:
    return [field for field in SCHEMAS[name] if columns is None or field.name in columns]


def _ensure_table(lake: Lake, name: str) -> DeltaTable:
    with unbroken(lake.ops(name)):
        return DeltaTable.create(
            lake.ops(name),
            schema=SCHEMAS[name],
            mode="ignore",
            description=DESCRIPTIONS[name],
            configuration=PROPERTIES,
        )
