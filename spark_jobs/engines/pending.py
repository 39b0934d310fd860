"""Events that wait in a bucket's state, as the stream's Event record is now.

They are kept as they came. So after a change of the record some buckets hold events of the
older one, until something settles there.
"""

import pyarrow as pa

from include.fold.definition import KeyedFold
from include.fold.schemas import event_schema
from include.lake.errors import StatefulError
from spark_jobs.engines.packing import from_stream


class PendingEventsError(StatefulError):
    """Events that wait are no events of the stream's record any more."""

    code = "settings_changed"


def pending_events(fold: KeyedFold, stream: bytes) -> pa.Table:
    """The events of an Arrow stream, with `event_schema(fold)`, by name.

    A field that was dropped is left out, one that was added is null. Raises PendingEventsError
    when it must not be null, or when a field had another type.
    """
    found, schema = from_stream(stream), event_schema(fold)
    if found.schema != schema:
        found = _by_name(fold, found, schema) if found.num_rows else schema.empty_table()
    for column in fold.event_columns:
        if not column.nullable and found[column.name].null_count:
            what = f"{fold.event.__name__}.{column.name} is never None, but was not there"
            raise _refusal(fold, what, "declare it `| None`")
    return found


def _by_name(fold: KeyedFold, found: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        if field.name not in found.schema.names:
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    found = found.select(schema.names)
    for field, was in zip(schema, found.schema, strict=True):
        if field.type != was.type:
            what = f"{fold.event.__name__}.{field.name} is {field.type} now, but was {was.type}"
            raise _refusal(fold, what, "put that back")
    return found


def _refusal(fold: KeyedFold, what: str, mend: str) -> PendingEventsError:
    return PendingEventsError(
        f"{what} when events came that still wait in the state of stream {fold.stream}: {mend}, or "
        "have them read from bronze anew",
        subject=fold.stream,
        command=f"./stateful reseed {fold.stream} --apply",
    )
