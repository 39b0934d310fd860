"""A stream's initial state, savepoint 0: the states of keys as of an instant, given by a user.

It is a Delta table or a JSON file, and read only. Whatever is wrong with it is found before
a stream's first run writes anything.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.definition import KeyedFold
from include.lake.paths import Lake
from include.landing.initial_state import (
    check_as_of,
    default_timeout_us,
    find_initial_state,
    newest_version,
    table_fingerprint,
)
from include.landing.initial_state_file import (
    document_fingerprint,
    read_document,
    states_of,
    typed_rows,
)
from spark_jobs.tables.initial_state_table import read_table


@dataclass(frozen=True)
class InitialState:
    """The states of some keys, all as of one instant."""

    as_of_us: int  # microseconds since 1970; events before it are in the states already
    fingerprint: str  # the same for as long as the content is the same
    # key, state struct<the fold's state columns>, timeout_at_us bigint (null: never)
    rows: DataFrame


def read_initial_state(
    spark: SparkSession, lake: Lake, stream: str, fold: KeyedFold
) -> InitialState | None:
    """The initial state of `stream`, checked as a whole; None when there is none.

    Raises SettingsError that names the file or table, and the key or row that is wrong.
    """
    found = find_initial_state(lake, stream)
    if found is None:
        return None
    read = _read_table if found.is_table else _read_file
    initial = _with_timeouts(read(spark, lake, found.path, fold), fold, found.path)
    check_as_of(found.path, initial.as_of_us)
    return initial


def state_rows(initial: InitialState) -> DataFrame:
    """The rows of an initial state as `state_rows_ddl` has them."""
    return initial.rows.select(
        F.lit(0).alias("bucket"),
        "key",
        "state",
        F.lit(initial.as_of_us).alias("changed_at_us"),
        "timeout_at_us",
    )


def _read_file(spark: SparkSession, lake: Lake, path: str, fold: KeyedFold) -> InitialState:
    document = read_document(lake, path)
    as_of_us, rows = typed_rows(path, document, fold)
    table = states_of(rows, as_of_us, fold).rows().select(["key", "state", "timeout_at_us"])
    return InitialState(as_of_us, document_fingerprint(document), spark.createDataFrame(table))


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
