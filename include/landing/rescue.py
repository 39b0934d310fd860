"""What a landed row has beside its source's fields: kept as JSON, and read again once declared."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from decimal import Decimal
from typing import Any

from include.fold.sql_types import SqlType, sql_type
from include.landed_formats import ISO
from include.landing.landed_row import Row, value_at
from include.landing.landed_values import Text, converter, is_unicode, value_of_text
from include.landing.refusals import RefusedError
from include.landing.row_as_json import Marks, has_marks, marks_of, restored, row_as_json
from include.settings import Source, Times

# What is known of a row, by name: all of it (None), or some members.
Known = dict[str, "Known | None"]
Check = Callable[[Any], bool]


class Rescue:
    """Of one file: what its rows have beside the fields of the source."""

    def __init__(self, source: Source) -> None:
        self._source, self._known = source, _known_of(source)
        self._marks = marks_of(source)
        self._dotted = [(path, path.partition(".")[0]) for path in _taken(source) if "." in path]
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
        unknown = _unknown(row, known)
        if not unknown:
            return None
        text = _text(unknown, self._marks)
        self._left -= len(text)
        if self._left < 0:
            names = ", ".join(name for name, _ in self._counts.most_common(3))
            raise RefusedError(
                "unknown_fields",
                f"the file's other fields ({names}, ...) come to more than max_file_bytes: declare "
                "them, ignore them, or split it",
            )
        self._counts.update(_paths(unknown, known))
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


def _taken(source: Source) -> list[str]:
    """The paths that are known: the shorter before what lies within them, what is ignored at last."""
    paths = [source.time_field, *(field.landed for field in source.fields)]
    return [*sorted(paths, key=lambda path: path.count(".")), *source.ignored]


def _known_of(source: Source, whole: Set[str] = frozenset()) -> Known:
    """`whole`: the paths that a row has as whole names, so that no step leads to them."""
    known: Known = {}
    for path in _taken(source):
        known[path] = None  # also as a whole name, which is taken first
        if path in whole:
            continue
        members: Known | None = known
        *steps, last = path.split(".")
        for step in steps:
            # What is known as a whole has no members to look at.
            members = None if members is None else members.setdefault(step, {})
        if members is not None:
            members[last] = None
    return known


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


def _check_of(known: Known | None) -> Check | None:
    if not known:
        return None
    is_known = _checker(known)
    # A path that goes through what is no object leads to nothing of it.
    return lambda value: value is None or (isinstance(value, dict) and is_known(value))


def _unknown(row: Row, known: Known) -> dict[str, object]:
    """The rest, as it lies in the row."""
    rest: dict[str, object] = {}
    for name, value in row.items():
        members = known.get(name)
        if value is None or (name in known and not members):
            continue
        if members and isinstance(value, dict):
            if inner := _unknown(value, members):
                rest[name] = inner
        else:
            rest[name] = value
    return rest


def _paths(unknown: Row, known: Known) -> Iterator[str]:
    for name, value in unknown.items():
        members = known.get(name)
        if members and isinstance(value, dict):
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
    convert, find, parsed = converter(kind, times), value_at(path), sql_type(kind)

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
