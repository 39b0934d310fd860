"""A stream's initial state, savepoint 0: the states of keys as of an instant, given by a user.

It is a Delta table or a JSON file, and read only. Whatever is wrong with it is found before
a stream's first run writes anything.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.lake import Lake
from include.streams import SettingsError
from spark_jobs.fold.admission import EPOCH, LAST_INSTANT_US, MICROSECOND
from spark_jobs.fold.definition import KeyedFold
from spark_jobs.lake.initial_state_file import document_fingerprint, read_document, typed_rows
from spark_jobs.lake.initial_state_table import newest_version, read_table, table_fingerprint


@dataclass(frozen=True)
class InitialState:
    """The states of some keys, all as of one instant."""

    as_of_us: int  # microseconds since 1970; events before it are in the states already
    fingerprint: str  # the same for as long as the content is the same
    # key, state struct<the fold's state columns>, timeout_at_us bigint (null: never)
    rows: DataFrame


class _Found(NamedTuple):
    path: str
    is_table: bool


def read_initial_state(
    spark: SparkSession, lake: Lake, stream: str, fold: KeyedFold
) -> InitialState | None:
    """The initial state of `stream`, checked as a whole; None when there is none.

    Raises SettingsError that names the file or table, and the key or row that is wrong.
    """
    found = _find(lake, stream)
    if found is None:
        return None
    read = _read_table if found.is_table else _read_file
    initial = _with_timeouts(read(spark, lake, found.path, fold), fold, found.path)
    check_as_of(found.path, initial.as_of_us)
    return initial


def check_as_of(path: str, as_of_us: int) -> None:
    """SettingsError for an initial state of the future."""
    as_of = EPOCH + as_of_us * MICROSECOND
    if as_of > datetime.now(UTC):
        # Every row until then would be left out, and each run would look well.
        raise SettingsError(f"initial state {path}: as_of {as_of} is in the future: mend it")


def state_rows(initial: InitialState) -> DataFrame:
    """The rows of an initial state as `state_rows_ddl` has them."""
    return initial.rows.select(
        F.lit(0).alias("bucket"),
        "key",
        "state",
        F.lit(initial.as_of_us).alias("changed_at_us"),
        "timeout_at_us",
    )


def read_fingerprint(lake: Lake, stream: str, pinned: str | None = None) -> str | None:
    """`InitialState.fingerprint` without a JVM; None when there is no initial state.

    `pinned` is the fingerprint of an earlier run, if there was one: Delta deletes a table's
    old commits in time, and what is left of them may then not tell when its rows last
    changed. It is still `pinned` where nothing that is left says otherwise.
    Raises SettingsError when the file or table cannot be read.
    """
    found = _find(lake, stream)
    if found is None:
        return None
    if not found.is_table:
        return document_fingerprint(read_document(lake, found.path))
    return table_fingerprint(lake, found.path, newest_version(found.path), pinned)


def _find(lake: Lake, stream: str) -> _Found | None:
    table, file = lake.initial_state(stream), lake.initial_state_file(stream)
    there = [path for path in (table, file) if _type(lake, path) != fs.FileType.NotFound]
    if len(there) == 2:
        raise SettingsError(f"there are two initial states, {table} and {file}: take one away")
    if not there:
        return None
    if there == [table] and not lake.is_delta_table(table):
        # To pass over it would start the stream from nothing, and nobody would know.
        raise SettingsError(
            f"initial state {table} is no Delta table: make it one, or give a file {file}"
        )
    if there == [file] and _type(lake, file) != fs.FileType.File:
        raise SettingsError(f"initial state {file} is a folder: make it one JSON file")
    return _Found(there[0], is_table=there == [table])


def _type(lake: Lake, path: str) -> fs.FileType:
    return lake.filesystem.get_file_info(lake.path_in_filesystem(path)).type


def _read_file(spark: SparkSession, lake: Lake, path: str, fold: KeyedFold) -> InitialState:
    document = read_document(lake, path)
    as_of_us, rows = typed_rows(path, document, fold)
    # Every value has been checked, stricter than Spark would.
    frame = spark.createDataFrame(rows, _rows_ddl(fold), verifySchema=False)
    return InitialState(as_of_us, document_fingerprint(document), frame)


def _rows_ddl(fold: KeyedFold) -> str:
    fields = ", ".join(f"`{column.name}`: {column.kind}" for column in fold.state_columns)
    return f"key {fold.key_column.kind}, state struct<{fields}>, timeout_at_us bigint"


def _read_table(spark: SparkSession, lake: Lake, path: str, fold: KeyedFold) -> InitialState:
    # The newest version, whenever its rows last changed: an older one is unreadable after a
    # VACUUM, and Delta refuses it after a week.
    version = newest_version(path)
    as_of_us, rows = read_table(spark, path, version, fold)
    return InitialState(as_of_us, table_fingerprint(lake, path, version), rows)


def _with_timeouts(initial: InitialState, fold: KeyedFold, path: str) -> InitialState:
    """Rows that name no timeout get the fold's, counted from `as_of`."""
    default_us = default_timeout_us(path, initial.as_of_us, fold)
    if default_us is None:
        return initial
    timeout_at_us = F.coalesce("timeout_at_us", F.lit(default_us)).alias("timeout_at_us")
    rows = initial.rows.select("key", "state", timeout_at_us)
    return InitialState(initial.as_of_us, initial.fingerprint, rows)


def default_timeout_us(path: str, as_of_us: int, fold: KeyedFold) -> int | None:
    """The timeout of rows that name none; SettingsError when it is no instant."""
    if fold.initial_timeout is None:
        return None
    default_us = as_of_us + fold.initial_timeout // MICROSECOND
    if not as_of_us < default_us <= LAST_INSTANT_US:
        raise SettingsError(
            f"initial state {path}: as_of is {EPOCH + as_of_us * MICROSECOND}, and the "
            f"stream's initial_timeout of {fold.initial_timeout} after it is no timeout: it must "
            "be after as_of, and not beyond the year 9999"
        )
    return default_us
