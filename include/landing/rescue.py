"""What a landed row has beside its source's fields: kept as JSON, and read again once declared."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from decimal import Decimal
from functools import reduce
from typing import Any

from include.fold.sql_types import SqlType, sql_type
from include.landed_formats import ISO
from include.landing.landed_row import Row, value_at
from include.landing.landed_values import Text, converter, is_unicode, value_of_text
from include.landing.nested_rescue import (
    ITEM,
    Inside,
    Parts,
    add,
    checker_inside,
    inside_of,
    unknown_inside,
)
from include.landing.refusals import RefusedError
from include.landing.row_as_json import Marks, has_marks, marks_of, restored, row_as_json
from include.settings import Source, Times

# What is known of a row, by name: all of it (None), some members, or as its type says.
Known = dict[str, "Known | Inside | None"]
Check = Callable[[Any], bool]


class Rescue:
    """Of one file: what its rows have beside the fields of the source."""

    def __init__(self, source: Source) -> None:
        self._source, self._known = source, _known_of(source)
        self._marks = marks_of(source)
        self._dotted = [(path, path.partition(".")[0]) for path, _ in _taken(source) if "." in path]
        # Quick, as nearly all rows have nothing else. A source that rescues nothing knows everything.
        self.is_known = self._checker() if source.rescue else lambda row: True
        self._left = source.max_file_bytes
        self._counts: Counter[str] = Counter()

    def text(self, row: Row) -> str | None:
        """It as a JSON object, name to value as landed; None of nothing, or of nulls alone.
        Of many rows, better asked only where `is_known` is False.

        RefusedError when it is nested too deeply, or all of the file's come to more than a file may.
        """
        if self.is_known(row):
            return None
        whole = self._whole(row)
        known = _known_of(self._source, whole) if whole else self._known
        unknown, inside = _unknown(row, known)
        if not unknown and not inside:
            return None
        paths = [*_paths(unknown, known), *inside]
        _add_all(unknown, "", inside)
        text = _text(unknown, self._marks)
        self._left -= len(text)
        if self._left < 0:
            names = ", ".join(name for name, _ in self._counts.most_common(3))
            raise RefusedError(
                "unknown_fields",
                f"the file's other fields ({names}, ...) come to more than max_file_bytes: declare "
                "them, ignore them, or split it",
            )
        self._counts.update(paths)
        return text

    def _checker(self) -> Check:
        is_known = _checker(self._known)
        if not self._dotted:
            return is_known
        return lambda row: is_known(row) and not self._whole(row)

    def _whole(self, row: Row) -> frozenset[str]:
        """The paths that a row has as whole names, which are taken, beside what the path leads to."""
        return frozenset(path for path, first in self._dotted if path in row and first in row)

    def fields(self) -> str | None:
        """How many rows had each of them: JSON; None without any."""
        return json.dumps(self._counts) if self._counts else None


def _taken(source: Source) -> list[tuple[str, Inside | None]]:
    """The paths that are known, and what within: the shorter before what lies within them; what is
    ignored, whatever it is, at last."""
    fields = [(field.landed, inside_of(sql_type(field.type))) for field in source.fields]
    paths = sorted([(source.time_field, None), *fields], key=lambda each: each[0].count("."))
    return [*paths, *((path, None) for path in source.ignored)]


def _known_of(source: Source, whole: Set[str] = frozenset()) -> Known:
    """`whole`: the paths that a row has as whole names, so that no step leads to them."""
    known: Known = {}
    for path, inside in _taken(source):
        known[path] = inside  # also as a whole name, which is taken first
        if path in whole:
            continue
        members: Known | None = known
        *steps, last = path.replace(ITEM, f".{ITEM}").split(".")
        for step in steps:
            # What is known as a whole has no members to look at.
            members = None if members is None else _within(members.setdefault(step, {}))
        if members is not None:
            members[last] = inside
    return known


def _within(node: "Known | Inside | None") -> Known | None:
    return node.known if isinstance(node, Inside) else node


def _checker(known: Known) -> Check:
    """Whether a row has nothing but what is known."""
    has_all = frozenset(known).issuperset
    checks = [(name, _check_of(node)) for name, node in known.items()]
    nested = [(name, check) for name, check in checks if check is not None]
    if not nested:
        return has_all

    def is_known(row: Row) -> bool:
        if not has_all(row):
            return False
        # Not all(): a row is seldom more than these few, and most of them are not nested.
        for name, is_member_known in nested:
            value = row.get(name)
            if value is not None and not is_member_known(value):
                return False
        return True

    return is_known


def _check_of(node: "Known | Inside | None") -> Check | None:
    if isinstance(node, Inside):
        return checker_inside(node, _check_of)
    if not node:
        return None
    is_known = _checker(node)
    # A path that goes through what is no object leads to nothing of it.
    return lambda value: value is None or (isinstance(value, dict) and is_known(value))


def _unknown(row: Row, known: Known) -> tuple[Parts, Parts]:
    """The rest as it lies in the row; and what is beside the members of nested types, by path."""
    rest: Parts = {}
    inside: Parts = {}
    for name, value in row.items():
        node = known.get(name)
        if value is None:
            continue
        if name not in known:
            rest[name] = value
        elif isinstance(node, Inside):
            _add_all(inside, name, _unknown_of(value, node))
        elif node and isinstance(value, dict):
            members, deeper = _unknown(value, node)
            rest |= {name: members} if members else {}
            _add_all(inside, f"{name}.", deeper)
        elif node:
            rest[name] = value
    return rest, inside


def _unknown_of(value: object, node: "Known | Inside | None") -> Parts:
    """What a nested value has, by path."""
    if isinstance(node, Inside):
        return unknown_inside(value, node, _unknown_of)
    if not node or value is None:
        return {}
    if not isinstance(value, dict):
        return {"": value}
    found: Parts = {}
    for parts in _unknown(value, node):
        _add_all(found, ".", parts)
    return found


def _add_all(parts: Parts, before: str, more: Parts) -> None:
    for path, value in more.items():
        add(parts, f"{before}{path}", value)


def _paths(unknown: Row, known: Known) -> Iterator[str]:
    for name, value in unknown.items():
        members = known.get(name)
        if members and isinstance(value, dict) and isinstance(members, dict):
            yield from (f"{name}.{path}" for path in _paths(value, members))
        else:
            yield name


def _text(unknown: Row, marks: Marks) -> str:
    try:
        text = row_as_json(unknown, marks)
    except RecursionError:
        raise RefusedError("not_json", "nested too deeply") from None
    # JSON can escape half a character, which no column can store but as an escape.
    return text if is_unicode(text) else json.dumps(json.loads(text))


def read_rescued(
    kind: str, path: str, texts: Sequence[str | None], times: Times = ISO
) -> list[object]:
    """The field at `path`, as a `kind`, of what was rescued of rows: null where that is no such value.

    A text is read as a cell of CSV is, a time as `times` says.
    """
    convert, find, parsed = converter(kind, times), _rescued_at(path), sql_type(kind)

    def read(text: str | None) -> object:
        if text is None or (value := find(json.loads(text, parse_float=Decimal))) is None:
            return None
        try:
            value = restored(value) if has_marks(text) else value
            if type(value) is str:  # (not Unreadable, which is none of any type)
                return convert(path, value if parsed.name == "string" else Text(value))
            return convert(path, _with_numbers(parsed, value))
        except (RefusedError, RecursionError):
            return None

    return list(map(read, texts))


def _rescued_at(path: str) -> Callable[[Row], object]:
    """As `value_at`; and what had more members within a nested value, which is under its own path:
    `{"payload.user": {"nick": ...}}`."""
    steps, whole = path.split("."), value_at(path)
    parts = [(".".join(steps[:end]), steps[end:]) for end in range(2, len(steps))]

    def find(rescued: Row) -> object:
        found = whole(rescued)
        for name, rest in parts:
            if found is None and name in rescued:
                found = reduce(_member, rest, rescued[name])
        return found

    return find


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _with_numbers(kind: SqlType, value: object) -> object:
    """Floats that are kept as texts, where they are more digits than a float has: as numbers."""
    if isinstance(value, str) and kind.name in ("float", "double"):
        return value_of_text(kind, "", value)
    if isinstance(value, list) and kind.name == "array":
        return [_with_numbers(kind.parts[0], item) for item in value]
    if isinstance(value, dict) and kind.name == "map":
        return {key: _with_numbers(kind.parts[1], item) for key, item in value.items()}
    if isinstance(value, dict) and kind.name == "struct":
        parts = zip(kind.names, kind.parts, strict=True)
        return {name: _with_numbers(part, value.get(name)) for name, part in parts}
    return value
