"""A stream's product table, made with its documented columns."""

import logging
from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable

from include.fold.definition import EMITTED_AT, EMITTED_DATE, Definition, KeyedFold
from include.lake.columns import APPEND_ONLY, CHECKPOINT_INTERVAL, Column, columns_of, documented
from include.lake.delta_log import create_if_absent, delta_table, found_columns
from include.lake.errors import LakeError

log = logging.getLogger("job.tables")
PROPERTIES = {
    # Readers without a JVM (delta-rs, DuckDB) must be able to read all tables.
    "delta.enableDeletionVectors": "false",
    # Delta forgets a checkpoint's batches after this: longer than any pause before a repeat.
    "delta.setTransactionRetentionDuration": "interval 365 days",
}
# Of products alone: a reader that goes on from version to version gets what a backfill took away, too.
CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
EMITTED_AT_COMMENTS = {
    "append": "When the event (or timeout) that emitted the row was, on the stream's clock, UTC",
    "update": "When the key last changed, on the stream's clock, UTC",
}


class TableSchemaError(LakeError):
    """The table has other columns than its stream now writes, or rows that cannot be replaced."""


def ensure_product(path: str, definition: Definition, is_rebuilt: bool = False) -> DeltaTable:
    """Return the table at `path`, created with its documented columns if it is not there.

    TableSchemaError when it has other columns, unless a rebuild is about to replace them.
    """
    columns = product_columns(definition.fold, definition.comments)
    if not DeltaTable.is_deltatable(path):
        dates = [EMITTED_DATE] if definition.fold.output_mode == "append" else []
        create_if_absent(path, columns, definition.title, PROPERTIES | CHANGE_FEED, dates)
        log.info("created %s", path)
        return delta_table(path)
    table = delta_table(path)
    if not is_rebuilt:
        _refuse_other_columns(path, table, definition)
    if table.metadata().configuration.get(APPEND_ONLY, "").lower() == "true":
        raise TableSchemaError(
            f"{path} has {APPEND_ONLY}=true, which others have set: no row of it could be replaced",
            code="foreign_properties",
            subject=f"tables/{path.rpartition('/')[2]}",
        )
    _keep_properties(path, table)
    return table


def _refuse_other_columns(path: str, table: DeltaTable, definition: Definition) -> None:
    found, expected = _columns(table, definition)
    if others := {name for name, _ in found.items() ^ expected.items()}:
        stream = path.rpartition("/")[2]
        raise TableSchemaError(
            f"{path} has other columns than the stream writes ({', '.join(sorted(others))}): restore the "
            "stream's key, output record and output mode, or the table. To go on with the new ones, rebuild it",
            code="other_columns",
            subject=f"tables/{stream}",
            command=f"./stateful rebuild {stream} --full-refresh --apply",
        )


def can_keep_rows(table: DeltaTable, definition: Definition) -> bool:
    """True if the rows of a table can stay when its stream's columns are added to it. Another output mode has
    other partitions."""
    found, expected = _columns(table, definition)
    is_partitioned = EMITTED_DATE in found
    return found.items() <= expected.items() and is_partitioned == (EMITTED_DATE in expected)


def _columns(
    table: DeltaTable, definition: Definition
) -> tuple[dict[str, pa.DataType], dict[str, pa.DataType]]:
    """Return the columns that a table has, and those that its stream writes now."""
    columns = documented(product_columns(definition.fold, definition.comments))
    return dict(found_columns(table)), dict(columns_of(columns))


def _keep_properties(path: str, table: DeltaTable) -> None:
    """Set the properties that are missing, and the change feed; what somebody has set otherwise stays."""
    found = table.metadata().configuration
    retained = CHECKPOINT_INTERVAL | PROPERTIES | found | CHANGE_FEED
    if retained != found:
        table.alter.set_table_properties(dict(retained.items() - found.items()))
        log.info("%s has the properties of a product from version %d on", path, table.version())


def product_columns(fold: KeyedFold, comments: Mapping[str, str]) -> list[Column]:
    """Return the output's columns, documented by `comments`, then when it was emitted."""
    columns = [Column(c.name, c.kind, comments[c.name]) for c in fold.output_columns]
    columns.append(Column(EMITTED_AT, "timestamp", EMITTED_AT_COMMENTS[fold.output_mode]))
    if fold.output_mode == "append":
        columns.append(Column(EMITTED_DATE, "date", "Partition: the date of emitted_at"))
    return columns


def same_key(fold: KeyedFold) -> str:
    """Return the condition of a MERGE of rows `new` into a table `old` of a row per key, in SQL that Spark and
    delta-rs both have."""
    return " AND ".join(_same(f"`{name}`", part.nullable) for name, part in fold.keys.parts)


def _same(name: str, nullable: bool) -> str:
    equal = f"old.{name} = new.{name}"
    return f"({equal} OR (old.{name} IS NULL AND new.{name} IS NULL))" if nullable else equal
