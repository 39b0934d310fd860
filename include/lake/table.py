"""A Delta table of the lake, opened once: its record and rows, files staged for it, commits to it.

Each commit of ours that changes rows carries a *record*, JSON in its `userMetadata`. One by delta-rs is the version
after the one that is open, or fails; one by Spark says which it `follows`. The newest record holds until others
change rows or columns.
"""

import json
import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableMerger
from deltalake.transaction import AddAction
from pyarrow import fs

from include.lake.columns import columns_of
from include.lake.delta_log import (
    changes_data,
    commit_info,
    delta_table,
    found_columns,
    made_at,
    open_table,
    read_actions,
    unbroken,
)
from include.lake.errors import LakeError, how_to_mend, subject_of
from include.lake.ops import despite_others
from include.lake.paths import Lake, files_of

USER_METADATA = "userMetadata"  # of a commit, in the table's log
RECORD = "stateful"  # the key of the record in a commit's userMetadata
COLUMNS = "columns"  # in a record: the table's columns, each with its type
FOLLOWS = "follows"  # ... and the version that its writer had last seen
ROWS_A_GROUP = 50_000  # with fewer files than cores, each core of Spark reads some groups
MOST_FILES = 100_000  # of one batch
RETAINED = timedelta(days=7)  # of a record
LONGEST, HIGHEST = 32, "\U0010ffff"  # characters of a text in bounds; and the last one of all

Record = Mapping[str, Any]


class Staged(NamedTuple):
    """A Parquet file in a table's folder that no commit has added yet."""

    path: str  # below the table
    size: int  # bytes
    rows: int
    stats: str  # JSON, as Delta's log has them

    def add(self) -> AddAction:
        """Return the action that adds it to the table's log."""
        folder, slash, _ = self.path.partition("/")
        parts = [folder.split("=", 1)] if slash else []
        return AddAction(self.path, self.size, dict(parts), _now_ms(), True, self.stats)


def transaction(app_id: str, version: int) -> Transaction:
    """Return the transaction by which `app_id` has written `version`, with its instant: without that, which
    delta-rs leaves out, Spark takes it for expired, and writes the batch again."""
    return Transaction(app_id, version, last_updated=_now_ms())


class Table:
    """An open table, and the newest version that was seen of it."""

    def __init__(self, lake: Lake, path: str, delta: DeltaTable) -> None:
        self.path, self.delta = path, delta
        self._lake = lake

    @classmethod
    def open(cls, lake: Lake, path: str) -> Self:
        """Open a table to write; LakeError when its log cannot be read."""
        with unbroken(path):
            return cls(lake, path, delta_table(path))

    @classmethod
    def read(cls, lake: Lake, path: str) -> Self:
        """Open a table to read: never commit with it, as others read by the same handle."""
        return cls(lake, path, open_table(path))

    @property
    def version(self) -> int:
        return int(self.delta.version())

    def record(self) -> Record | None:
        """Return the newest record; None of a table that has none yet; LakeError when it does not hold, or is gone."""
        version = self.version + 1
        for version, actions in self._commits():
            if (record := record_of(actions)) is not None:
                self._refuse_lost_columns(record)
                # Commits of others that its writer has not seen.
                self._refuse_others(record.get(FOLLOWS, version - 1) + 1, version)
                return record
            if not actions:
                raise self._mismatch(f"commit {version} is empty, as after a power cut")
            if changes_data(actions):
                raise self._mismatch(f"commit {version} is not ours, and changes its rows")
        if version > 0 and self.delta.file_uris():  # one without rows needs none
            raise self._mismatch("its log has no record of ours any more")
        return None

    def _commits(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yield the commits with their versions, from the newest to the log's first."""
        for version in range(self.version, -1, -1):
            actions = read_actions(self._lake, self.path, version)
            if actions is None:
                return
            yield version, actions

    def _records(self) -> Iterator[tuple[Record, datetime]]:
        """Yield each record, and when it was made, from the newest on."""
        for _, actions in self._commits():
            if (record := record_of(actions)) is not None:
                yield record, made_at(actions)

    def newest_record(self) -> Record | None:
        """Return the newest record in the log, whether it holds or not; None where there is none."""
        return next((record for record, _ in self._records()), None)

    def _refuse_others(self, first: int, until: int) -> None:
        for other in range(first, until):
            actions = read_actions(self._lake, self.path, other)
            if actions and changes_data(actions) and record_of(actions) is None:
                raise self._mismatch(f"commit {other} is not ours, and changes its rows")

    def _refuse_lost_columns(self, record: Record) -> None:
        has = self.columns()
        lost = [name for name, kind in record.get(COLUMNS, {}).items() if has.get(name) != kind]
        if lost:
            raise self._mismatch(f"it has no column {lost[0]} any more, as our last commit left it")

    def _mismatch(self, what: str) -> LakeError:
        return of_other_times(self.path, f"{self.path} is not as our jobs left it: {what}")

    def columns(self) -> dict[str, str]:
        """Return the columns' types, as Arrow names them."""
        return _kinds(found_columns(self.delta))

    def commit(
        self,
        staged: Sequence[Staged],
        record: Record,
        *batch: Transaction,
        over: list[tuple[str, str, str]] | None = None,
    ) -> None:
        """Add files, if any, with the record; CommitFailedError when another has made the next version.

        `over`: they replace all rows of these partitions, such as ("event_date", "=", "2026-03-01").
        """
        made = self.version + 1
        self.delta.create_write_transaction(
            [file.add() for file in staged],
            "append" if over is None else "overwrite",
            self.delta.schema(),
            partition_filters=over or None,
            partition_by=list(self.delta.metadata().partition_columns),
            commit_properties=self.telling(record, *batch),
        )
        self.reopen()
        if self.version > made:
            self.record()  # the next record must not hide a commit of others

    def merge(
        self,
        rows: pa.Table,
        same: str,
        clauses: Callable[[TableMerger], TableMerger],
        record: Record,
        *batch: Transaction,
    ) -> None:
        """Merge the rows `new` into the `old` ones for which `same` holds, by `clauses`."""
        before = self.version
        telling = self.telling(record, *batch)
        merged = self.delta.merge(rows, same, "new", "old", commit_properties=telling)
        clauses(merged).execute()
        if self.version == before:  # nothing changed, and delta-rs then makes no commit
            self.commit([], record, *batch)

    def telling(self, record: Record, *batch: Transaction) -> CommitProperties:
        """Return the properties of a commit that carries the record, and is the next version or none."""
        return CommitProperties(
            custom_metadata={USER_METADATA: self.text(record)},
            max_commit_retries=0,
            app_transactions=list(batch) or None,
        )

    def text(self, record: Record, schema: pa.Schema | None = None) -> str:
        """Return the record as a commit's `userMetadata`, for other writers; `schema`: of a commit that replaces
        the table's."""
        columns = self.columns() if schema is None else _kinds(columns_of(schema))
        return json.dumps({RECORD: {**record, COLUMNS: columns, FOLLOWS: self.version}})

    def same_record(self) -> CommitProperties | None:
        """Return the properties of a commit that repeats the record; None where there is none."""
        record = None if self.newest_record() is None else self.record()
        return None if record is None else self.telling(record)

    def restore(self, is_wanted: Callable[[Record], bool], record: Record) -> None:
        """Go back to the rows of the newest version whose record is wanted, or to its first version."""
        for version, actions in self._commits():
            known = record_of(actions)
            if version == 0 or (known is not None and is_wanted(known)):
                break
        self.delta.restore(version, commit_properties=self.telling(record))
        self.reopen()

    def keep_record(self) -> None:
        """Commit the newest record again once it is a week old, so that the clean-up of the log leaves one."""
        with suppress(LakeError):  # the next writer is to find what others have changed
            if self.record() is not None:
                record, at = next(self._records())
                if at < datetime.now(UTC) - RETAINED:
                    self.commit([], record)

    def alter(self, change: Callable[[DeltaTable], None]) -> None:
        """Make commits that change no rows, such as to columns; repeat them when others came between."""

        def attempt() -> None:
            try:
                change(self.delta)
            except CommitFailedError:
                self.reopen()
                raise

        despite_others(attempt)
        self.record()  # as of a commit

    def reopen(self) -> None:
        """Move on to the newest version, whoever made it."""
        self.delta.update_incremental()


def _kinds(columns: Iterable[tuple[str, pa.DataType]]) -> dict[str, str]:
    return {name: str(kind) for name, kind in columns}


def of_other_times(path: str, message: str) -> LakeError:
    """Return the error of a table that does not fit others, or is not as our jobs left it."""
    command = how_to_mend(path).command
    return LakeError(message, code="of_other_times", subject=subject_of(path), command=command)


def record_of(actions: Sequence[Mapping[str, Any]]) -> Record | None:
    """Return the record of a commit; None of one that has none, or somebody else's text."""
    with suppress(ValueError):
        found = json.loads(commit_info(actions).get(USER_METADATA) or "{}")
        record = found.get(RECORD) if isinstance(found, dict) else None
        return record if isinstance(record, dict) else None
    return None


PARQUET = ds.ParquetFileFormat()


def stage(
    table: str, rows: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema, by: str | None = None
) -> list[Staged]:
    """Write rows as Parquet files, with checksums of pages, in a table's folder: some for each value of the
    column `by`."""
    files, written, has_nan = files_of(table), list[Any](), False

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal has_nan
        for part in rows.to_batches() if isinstance(rows, pa.Table) else rows:
            if part.num_rows:
                part = part.select(schema.names).cast(schema)
                has_nan |= any(map(_has_nan, part.columns))
                yield part

    parts = batches()
    if (first := next(parts, None)) is None:
        return []
    is_local = _made(files)
    ds.write_dataset(
        chain([first], parts),
        "",
        basename_template=f"part-{uuid.uuid4()}-{{i}}.parquet",
        format=PARQUET,
        partitioning=by and ds.partitioning(pa.schema([schema.field(by)]), flavor="hive"),
        schema=schema,
        filesystem=files,
        file_options=PARQUET.make_write_options(write_page_checksum=True),
        use_threads=False,  # in order
        max_partitions=MOST_FILES,
        min_rows_per_group=ROWS_A_GROUP,
        max_rows_per_group=ROWS_A_GROUP,
        file_visitor=written.append,
        existing_data_behavior="overwrite_or_ignore",
        create_dir=is_local,
    )
    return [_staged(file.path, file.size, file.metadata, has_nan) for file in written]


def _made(files: fs.SubTreeFileSystem) -> bool:
    """Make the folder where folders must be made; True if they must."""
    if is_local := isinstance(files.base_fs, fs.LocalFileSystem):
        files.create_dir(".", recursive=True)
    return is_local


def stage_empty(table: str, schema: pa.Schema) -> Staged:
    """Write a file without a row."""
    files, path = files_of(table), f"part-{uuid.uuid4()}.parquet"
    _made(files)
    pq.write_table(schema.empty_table(), path, filesystem=files, write_page_checksum=True)
    return found_file(table, path)


def found_file(table: str, path: str) -> Staged:
    """Return a file that an earlier process has staged; FileNotFoundError when it is gone."""
    files = files_of(table)
    metadata = pq.read_metadata(path, filesystem=files)
    columns = metadata.schema.to_arrow_schema()
    has_fractions = any(map(pa.types.is_floating, columns.types))  # of which some may be none
    return _staged(path, files.get_file_info(path).size, metadata, has_fractions)


def _staged(path: str, size: int, metadata: pq.FileMetaData, has_nan: bool) -> Staged:
    return Staged(path, size, metadata.num_rows, _stats(metadata, has_nan))


def _has_nan(column: pa.Array) -> bool:
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def _stats(file: pq.FileMetaData, has_nan: bool) -> str:
    """Return the statistics of a file for Delta's log, as JSON: rows, nulls, and bounds.

    Bounds of all columns or of none: delta-rs finds no row by a column that lacks them beside others.
    None with `has_nan`: no bound of a number holds for what is none.
    """
    columns: dict[str, list[pq.Statistics | None]] = {}
    for group in map(file.row_group, range(file.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if "." not in chunk.path_in_schema:
                columns.setdefault(chunk.path_in_schema, []).append(chunk.statistics)
    known = {name: [each for each in of if each] for name, of in columns.items()}
    nulls = {name: str(sum(each.null_count for each in of)) for name, of in known.items()}
    stats = {"numRecords": str(file.num_rows), "nullCount": _object(nulls)}
    filled = {name: [each for each in of if each.num_values] for name, of in known.items()}
    is_whole = known == columns and all(s.has_min_max for of in filled.values() for s in of)
    if is_whole and not has_nan:
        least = {n: _bound(min(s.min for s in of), False) for n, of in filled.items() if of}
        most = {n: _bound(max(s.max for s in of), True) for n, of in filled.items() if of}
        if None not in (*least.values(), *most.values()):
            stats |= {"minValues": _object(least), "maxValues": _object(most)}
    return _object(stats)


def _object(members: Mapping[str, str | None]) -> str:
    """A JSON object of JSON texts."""
    return f"{{{', '.join(f'{_text(name)}: {value}' for name, value in members.items())}}}"


def _text(value: str) -> str:
    # Not in ASCII: delta-rs misreads the last characters where they are escaped.
    return json.dumps(value, ensure_ascii=False)


def _bound(value: Any, is_most: bool) -> str | None:
    """Return a bound as JSON; None of types that have no bounds there, such as bytes."""
    if isinstance(value, str):
        cut = value if len(value) <= LONGEST else value[:LONGEST] + HIGHEST * is_most
        return None if is_most and cut < value else _text(cut)
    if hasattr(value, "isoformat"):
        is_utc = getattr(value, "tzinfo", None) is not None
        return _text(value.replace(tzinfo=None).isoformat() + "Z" if is_utc else value.isoformat())
    if isinstance(value, Decimal):
        return f"{value:f}"
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return json.dumps(value) if is_number else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
