"""Fields that a file's folder has for all of its rows: `dt=2026-11-20/a.jsonl`."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from include.landing.landed_values import Text, is_read_of_text
from include.landing.refusals import UnreadableFileError
from include.settings import Source

NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(name: str, source: Source) -> dict[str, object]:
    """What the folders of the file `name` say of the source's fields, by `Field.landed`.

    UnreadableFileError when a required one is missing, or there twice.
    """
    fields = [field for field in source.fields if field.from_folder]
    if not fields:
        return {}
    folders = PurePosixPath(name).parts[:-1]
    found: dict[str, object] = {}
    for field in fields:
        told = [
            part.removeprefix(field.landed) for part in folders if part.startswith(field.landed)
        ]
        if len(told) > 1 or (field.required and told in ([], [NULL])):
            raise UnreadableFileError(
                f"its folder says {field.landed} {len(told)} times, expected once: "
                f"{'/'.join(folders) or 'no folder'}"
            )
        text = unquote(told[0]) if told and told[0] != NULL else None
        is_read = text is not None and is_read_of_text(field.type)
        found[field.landed] = Text(text) if is_read else text
    return found


class InFolder:
    """The rows of a file, each with its folder's fields. `rows` as `LandedRows` has it."""

    def __init__(self, rows: Any, folder: Mapping[str, object]) -> None:
        self._rows = rows
        self._folder = folder

    def items(self) -> Iterator[Any]:
        return iter(self._rows.items())

    def values(self, item: Any) -> Mapping[str, object]:
        return {**self._rows.values(item), **self._folder}

    def raw(self, item: Any) -> str:
        return str(self._rows.raw(item))
