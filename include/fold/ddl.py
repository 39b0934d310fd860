"""A fold's schemas as Spark writes them (DDL): text, so whoever only names them needs no Arrow."""

from include.fold.definition import EMITTED_AT_US, KEY, REMOVED, KeyedFold
from include.fold.records import Column

# The live engine's state variables, each with a value for each bucket. Keys are apart because
# most batches bring no new one: so they are not written again. Streams are Arrow's.
KEYS, BUCKET_STATE = "bucket_keys", "bucket_state"
DEAD_LETTERS_DDL = (
    "key string, at_us bigint, number int, cause string, event string, error string, "
    "message string, traceback string"
)


def event_ddl(fold: KeyedFold) -> str:
    """`event_schema`, as Spark writes it."""
    text = ddl(fold.event_columns)
    if fold.time_us not in {column.name for column in fold.event_columns}:
        text += f", `{fold.time_us}` bigint"
    return f"{text}, `{KEY}` {fold.keys.kind}" if fold.keys.is_derived else text


def ddl(columns: tuple[Column, ...]) -> str:
    """Columns as Spark DDL: `user_id string, total_count bigint`."""
    return ", ".join(f"`{column.name}` {column.kind}" for column in columns)


def output_ddl(fold: KeyedFold) -> str:
    """`output_schema`, as Spark writes it."""
    text = f"{ddl(fold.output_columns)}, {EMITTED_AT_US} bigint"
    return f"{text}, {REMOVED} boolean" if fold.output_mode == "update" else text


def state_rows_ddl(fold: KeyedFold) -> str:
    """One key's state as a row, in savepoints and in replay: part of what pins a generation.

    `state` is null for a key that has only a timeout, `timeout_at_us` for one that has none.
    """
    return f"bucket int, {state_ddl(fold)}"


def state_ddl(fold: KeyedFold) -> str:
    """The same, but for the bucket: `state_schema`."""
    beside = "".join(f", {column.name} {column.kind}" for column in fold.beside)
    return (
        f"key {fold.keys.kind}, state {fold.state_shape.kind}, changed_at_us bigint, "
        f"timeout_at_us bigint{beside}"
    )
