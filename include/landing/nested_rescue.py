"""What values of nested types have beside the members that their types declare."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from include.fold.sql_types import SqlType
from include.landing.landed_values import Text

ITEM = "[]"


@dataclass(frozen=True)
class Inside:
    """What is known within a struct, by name; within an array, or the values of a map, under `ITEM`."""

    known: dict[str, Any]  # to None, all of it; to another of these; or to some members: rescue.py
    is_struct: bool = True


Parts = dict[str, object]


def inside_of(kind: SqlType) -> Inside | None:
    """Of a type; None where no struct is in it, so that all is known."""
    if kind.name == "struct":
        return Inside(dict(zip(kind.names, map(inside_of, kind.parts), strict=True)))
    item = inside_of(kind.parts[-1]) if kind.name in ("array", "map") else None
    return item and Inside({ITEM: item}, is_struct=False)


def checker_inside(
    inside: Inside, check_of: Callable[[Any], Callable[[Any], bool] | None]
) -> Callable[[Any], bool]:
    """Whether a value has nothing but what is known. `check_of`: the same of what lies within."""
    if not inside.is_struct:
        is_item_known = check_of(inside.known[ITEM])
        assert is_item_known is not None
        return lambda value: all(is_item_known(item) for _, item in _items(value))
    has_all = frozenset(inside.known).issuperset
    checks = [(name, check_of(node)) for name, node in inside.known.items()]
    nested = [(name, check) for name, check in checks if check is not None]

    def is_known(value: Any) -> bool:
        found = _of_text(value)
        if not isinstance(found, dict):
            return True
        return has_all(found) and all(check(found.get(name)) for name, check in nested)

    return is_known


def unknown_inside(
    value: object, inside: Inside, unknown_of: Callable[[object, Any], Parts]
) -> Parts:
    """The rest, by path: `.nick`, `.user.nick`; of items those that have it, by index or key: `[].gift`.

    `unknown_of`: the same of what lies within.
    """
    found: Parts = {}
    if not inside.is_struct:
        for key, item in _items(value):
            for path, part in unknown_of(item, inside.known[ITEM]).items():
                of_items: Any = found.setdefault(f"{ITEM}{path}", {})
                add(of_items, str(key), part)
        return found
    members = _of_text(value)
    for name, of in members.items() if isinstance(members, dict) else ():
        if of is None:
            continue
        parts = unknown_of(of, inside.known[name]) if name in inside.known else {"": of}
        for path, part in parts.items():
            add(found, f".{name}{path}", part)
    return found


def add(parts: Parts, name: str, value: object) -> None:
    """Under that name, or where a name with a dot in it is the same as a path, under one that is free."""
    while name in parts:
        name += "'"
    parts[name] = value


def _items(value: object) -> Iterable[tuple[object, object]]:
    """Of an array by index, of a map by key; Parquet has a map as pairs."""
    value = _of_text(value)
    if isinstance(value, Mapping):
        return value.items()
    return _indexed(value) if isinstance(value, list) else ()


def _indexed(items: list[Any]) -> Iterator[tuple[object, object]]:
    for index, item in enumerate(items):
        yield item if isinstance(item, tuple) else (index, item)


def _of_text(value: object) -> object:
    """A cell of CSV has JSON; whoever asks has read it before, so it is some."""
    return json.loads(value, parse_float=Decimal) if type(value) is Text else value
