"""Whether bronze has the fields that a fold asks for, by the table's own log."""

from include.fold.bucket import INSTANTS
from include.fold.definition import KeyedFold
from include.fold.records import DefinitionError, sql_type
from include.lake.columns import found_columns, sql_name
from include.lake.delta_log import table_to_read


def check_bronze(path: str, fold: KeyedFold) -> None:
    """DefinitionError unless the bronze at `path` has the fold's fields, with their types."""
    found = {name: sql_name(kind) for name, kind in found_columns(table_to_read(path))}
    for column in fold.event_columns:
        has = found.get(column.name)
        if column.name in INSTANTS or (has and sql_type(column.kind).holds(sql_type(has))):
            continue
        raise DefinitionError(
            f"{fold.event.__name__}.{column.name} is {column.kind}, but bronze has "
            f"{has or 'no such column'}; its columns are {found}",
            subject=column.name,
        )
