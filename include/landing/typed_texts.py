"""The texts of files that say their types (Parquet, Avro): none of them is the Base64 of bytes."""

from collections.abc import Callable, Mapping

from include.landing.landed_values import TypedText
from include.settings import Source

Row = Mapping[str, object]


def text_typer(source: Source) -> Callable[[Row], Row]:
    """What tells the texts of a row from Base64, where the source reads some."""
    paths = [field.landed for field in source.fields if "binary" in field.type]
    columns = {*paths, *(path.partition(".")[0] for path in paths)}
    if not columns:
        return lambda row: row
    return lambda row: {name: _typed(of) if name in columns else of for name, of in row.items()}


def _typed(value: object) -> object:
    if type(value) is str:
        return TypedText(value)
    if type(value) is list:
        return [_typed(item) for item in value]
    if type(value) is tuple:  # a key of a map, and its value
        return tuple(_typed(part) for part in value)
    if type(value) is dict:
        return {name: _typed(of) for name, of in value.items()}
    return value
