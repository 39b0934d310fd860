"""The key that is to be erased, as somebody wrote it: of a stream, or values of a source's fields."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from include.fold.keys import FoldKey
from include.lake.columns import arrow_type
from include.lake.errors import SettingsError, wrong_argument
from include.registry import source_named, source_names, stream_named, stream_names
from include.settings import Field, Source, Stream
from include.stream_definition import load_definition

# The environment variable by which a job is told it.
ERASED_KEY = "ERASE_KEY"


@dataclass(frozen=True)
class ErasedKey:
    """Values of fields of a source, at least one of them not None; as Arrow has them, and as text."""

    source: Source
    values: Mapping[str, pa.Scalar]

    @property
    def texts(self) -> dict[str, str | None]:
        """What is hashed, and looked for in texts."""
        values = ((name, value.as_py()) for name, value in self.values.items())
        return {name: None if value is None else str(value) for name, value in values}

    def field(self, name: str) -> Field:
        """What the source says of one of them."""
        return next(field for field in self.source.fields if field.name == name)


def erased_key(name: str, text: str) -> ErasedKey:
    """The key of a stream (`alice`, `["north", 7]`), or of a source (`user_id=alice`).

    SettingsError for what is none.
    """
    if name in stream_names():
        stream = stream_named(name)
        fields = key_fields(stream)
        source = source_named(stream.source)
        if fields is None:
            raise SettingsError(
                f"{name} keeps its states by a function of an event: give its source and the field "
                f"that names whom to erase",
                code="wrong_argument",
                subject=name,
                command=f"./stateful erase {source.name} FIELD=VALUE",
            )
        return _typed(source, dict(zip(fields, _values(name, fields, text), strict=True)))
    if name not in source_names():
        raise SettingsError(
            f"{name} is neither a stream nor a source", code="unknown_stream", subject=name
        )
    field, is_given, value = text.partition("=")
    if not is_given:
        example = f"{source_named(name).fields[0].name}=VALUE"
        raise wrong_argument(name, f"{name} is a source: give FIELD=VALUE, such as {example}")
    return _typed(source_named(name), {field: value})


def key_fields(stream: Stream) -> tuple[str, ...] | None:
    """The fields of bronze that the stream keeps its states by; None for a function of an event."""
    keys: FoldKey = load_definition(stream).fold.keys
    known = {field.name for field in source_named(stream.source).fields}
    return keys.names if not keys.is_derived and known >= set(keys.names) else None


def _values(name: str, fields: tuple[str, ...], text: str) -> list[str | None]:
    if len(fields) == 1:
        return [text]
    told = f"the key of {name} is {', '.join(fields)}: give a JSON list of {len(fields)} values"
    try:
        found = json.loads(text)
    except ValueError:
        raise wrong_argument(name, told) from None
    if not isinstance(found, list) or len(found) != len(fields):
        raise wrong_argument(name, told)
    return [None if value is None else str(value) for value in found]


def _typed(source: Source, given: Mapping[str, str | None]) -> ErasedKey:
    known = {field.name: field for field in source.fields}
    for name in given:
        if name not in known:
            raise wrong_argument(
                name,
                f"source {source.name} has no field {name!r}: its fields are {', '.join(known)}",
            )
    if all(value is None for value in given.values()):
        raise wrong_argument(source.name, "a key of nulls alone names nobody")
    typed = {name: _scalar(name, known[name].type, value) for name, value in given.items()}
    return ErasedKey(source, typed)


def _scalar(name: str, type_name: str, text: str | None) -> Any:
    kind = arrow_type(type_name)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_floating(kind):
        raise wrong_argument(name, f"{name} is {type_name}: nobody can be named by it here")
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except UnicodeEncodeError:
        # A shell hands over any bytes, and JSON has halves of letters; no row has either.
        raise wrong_argument(name, f"the value of {name} is no text in UTF-8") from None
    except pa.ArrowException:
        # Without the value: whom it names is to be written nowhere.
        raise wrong_argument(name, f"the value of {name} is no {type_name}") from None
