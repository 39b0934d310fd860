"""States of an older schema as states of the new one, by the stream's own `migrate_state`.

Key, timeout and time of the last change stay as they are: what a key has seen does not change.
So does what it has beside its state: timers by their names, and values seen where `by` is the same.
"""

from collections.abc import Iterable, Iterator
from decimal import localcontext
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from include.fold.admission import NEVER_US
from include.fold.arrow_values import conformed, decode, states_to_migrate
from include.fold.ddl import state_rows_ddl
from include.fold.definition import Key, KeyedFold, MigrateState
from include.fold.failures import ARITHMETIC
from include.fold.group_state import TIMERS
from include.fold.records import Column
from include.fold.states import NO_STATE_US, States
from include.lake.columns import arrow_type, sql_name
from spark_jobs.engines.state_rows import states_to_rows


class MigrationError(RuntimeError):
    """`migrate_state` failed for a key, or made of its state what the schema does not take."""


def migrated_states(rows: DataFrame, fold: KeyedFold, migrate: MigrateState) -> DataFrame:
    """Rows of a savepoint of any state schema as rows of `state_rows_ddl(fold)`.

    Lazy: a job that reads them fails with MigrationError in its message when a state cannot
    be mapped.
    """

    def migrate_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from states_to_rows(migrated(batch, fold, migrate), bucket=0).to_batches()

    return rows.mapInArrow(migrate_all, state_rows_ddl(fold))


def migrated(batch: pa.RecordBatch, fold: KeyedFold, migrate: MigrateState) -> States:
    """The new states of a savepoint's rows. MigrationError names the key and what is wrong."""
    states = States(fold)
    keys = decode(fold.keys.shape, conformed(batch["key"], arrow_type(fold.keys.kind)), "key")
    columns = [keys, states_to_migrate(batch["state"], fold), batch["changed_at_us"].to_pylist()]
    timeouts_us = batch["timeout_at_us"].to_pylist()
    columns += [timeouts_us, _beside(batch, fold)]
    for key, old, changed_at_us, timeout_us, beside in zip(*columns, strict=True):
        # A key that has only a timeout has nothing to map.
        new = None if old is None else _new_state(key, old, fold, migrate=migrate)
        never = timeout_us is None or not fold.times_out
        _put(states, key, new, changed_at_us, NEVER_US if never else timeout_us)
        for column, value in zip(fold.beside, beside, strict=True):
            states.put_beside(column.name, key, value)
    return states


def _beside(batch: pa.RecordBatch, fold: KeyedFold) -> list[tuple[Any, ...]]:
    """What each key has beside its state, where that is of the same kind as it is now."""
    columns = [_kept(batch, column) for column in fold.beside]
    return list(zip(*columns, strict=True)) or [()] * batch.num_rows


def _kept(batch: pa.RecordBatch, column: Column) -> list[Any]:
    if column.name not in batch.schema.names:
        return [None] * batch.num_rows
    stored = batch[column.name]
    if column.name == TIMERS:
        stored = _by_name(stored, arrow_type(column.kind))
    if sql_name(stored.type) != column.kind:
        return [None] * batch.num_rows
    return decode(column.shape, conformed(stored, arrow_type(column.kind)), column.name)


def _by_name(timers: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    """The timers that are declared now, those of them that were before as they are set."""
    before = dict(zip((field.name for field in timers.type), timers.flatten(), strict=True))
    columns = [before.get(field.name, pa.nulls(len(timers), field.type)) for field in wanted]
    is_none_set = reduce(pc.and_, [pc.is_null(column) for column in columns])
    return pa.StructArray.from_arrays(columns, fields=[*wanted], mask=is_none_set)


def _new_state(key: Key, old: dict[str, Any], fold: KeyedFold, migrate: MigrateState) -> Any:
    try:
        with localcontext(ARITHMETIC):
            new = migrate(old)
    except Exception as error:  # anything: it is the user's code, and only the key is ours to add
        raise MigrationError(f"{_at(key)}: {type(error).__name__}: {error}") from error
    if not isinstance(new, fold.state):
        raise MigrationError(f"{_at(key)}: it returned {new!r}, and not a {fold.state.__name__}")
    return new


def _put(states: States, key: Key, new: Any, changed_at_us: int | None, timeout_us: int) -> None:
    try:
        states.put(key, new, NO_STATE_US if changed_at_us is None else changed_at_us, timeout_us)
    except (TypeError, UnicodeEncodeError) as error:
        raise MigrationError(f"{_at(key)}: it returned {new!r}: {error}") from error


def _at(key: Key) -> str:
    return f"migrate_state, for key {key!r}"
