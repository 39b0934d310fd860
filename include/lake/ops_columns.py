"""A column of an `ops` table; its comment is its documentation in the table."""

import pyarrow as pa

INSTANT = pa.timestamp("us", tz="UTC")


def ops_column(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    """Nullable, as all columns that a later release adds must be."""
    return pa.field(name, kind, metadata={"comment": comment})
