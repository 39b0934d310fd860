"""JSON: an object a line; or an array of objects, or objects over several lines."""

import io
import json
import re
from array import array
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import NoReturn, TypeAlias

from include.landing.refusals import RefusedError, UnreadableFileError, shown
from include.landing.rescue import Rescue
from include.landing.row_as_json import has_marks, restored
from include.settings import Source

EOL = "\r\n"
BLANKS = f" \t{EOL}"
BLANK = re.compile(rf"[{BLANKS}]*")
Spans: TypeAlias = (
    "array[int]"  # where each row begins and ends, in turns: a file may have millions
)
DEEP = "nested too deeply"
SHOWN_LEFT = 20


class JsonRows:
    """One JSON object a line. Of a field given twice, the last counts."""

    def __init__(self, text: str, source: Source) -> None:
        self._text = text
        self._json = EXACT_JSON if any("decimal(" in f.type for f in source.fields) else JSON
        self._is_known = Rescue(source).is_known

    def items(self) -> Iterator[str]:
        # Not splitlines(): it also breaks at characters that JSON allows within a string.
        for line in io.StringIO(self._text, newline="\n"):
            if line.strip(BLANKS):
                yield line.rstrip(EOL)

    def values(self, item: str) -> Mapping[str, object]:
        try:
            value = self._json.decode(item)
            # What is rescued may be declared a decimal one day.
            if isinstance(value, dict) and not self._is_known(value):
                value = EXACT_JSON.decode(item)
        except RecursionError:
            raise RefusedError("not_json", DEEP) from None
        except (ValueError, InvalidOperation) as error:
            raise RefusedError("not_json", _what_is_wrong(error)) from None
        if not isinstance(value, dict):
            raise RefusedError("not_an_object", f"found {shown(value)}{_hint(value)}")
        return value

    def raw(self, item: str) -> str:
        return item


class RawRows(JsonRows):
    """`raw` of rows whose values had types, or corrections of them: with what is marked there."""

    def values(self, item: str) -> Mapping[str, object]:
        row = super().values(item)
        if not has_marks(item):
            return row
        try:
            return {column: restored(value) for column, value in row.items()}
        except RecursionError:
            raise RefusedError("not_json", DEEP) from None


# By how the parser's own words begin.
WRONG = {
    "Expecting value": "a value is missing, or begins with none of what JSON has",
    "Expecting property name": "a name in double quotes is missing",
    "Illegal trailing comma": "a comma stands before the end",
    "Expecting ':' delimiter": "a colon is missing behind a name",
    "Expecting ',' delimiter": "a comma, or the end of the array or object, is missing",
    "Unterminated string": "a text begins that has no end",
    "Invalid control character": "a text has a tab, line end or the like that is not escaped",
    "Invalid \\escape": "a backslash is before a letter that it does not escape",
    "Invalid \\uXXXX escape": "\\u is not before four hexadecimal digits",
    "Extra data": "more text follows behind the end",
}


def _what_is_wrong(error: Exception) -> str:
    """In plain words, and where: lines and columns are of the row."""
    if not isinstance(error, json.JSONDecodeError):
        return "a number has more digits than can be read"
    told = next((words for begins, words in WRONG.items() if error.msg.startswith(begins)), None)
    left = error.doc[error.pos : error.pos + SHOWN_LEFT]
    where = f"line {error.lineno}, column {error.colno}: {shown(left) if left else 'its end'}"
    return f"{told or error.msg}, at {where}"


def _hint(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return ": it is a JSON array inside lines. Write one object a line, or one array a file"
    return ""


class JsonDocument(JsonRows):
    """Values that lines do not part: the items of an array, or one object after the other."""

    def __init__(self, text: str, source: Source, spans: Spans) -> None:
        super().__init__(text, source)
        self._spans = spans

    def items(self) -> Iterator[str]:
        bounds = iter(self._spans)
        return (self._text[start:end] for start, end in zip(bounds, bounds, strict=True))


def json_rows(text: str, source: Source) -> JsonRows:
    """The rows as the content has them; UnreadableFileError when an array or object never ends."""
    try:
        spans = _spans(text)
    except RecursionError:
        raise UnreadableFileError(f"a JSON value {DEEP}") from None
    return JsonRows(text, source) if spans is None else JsonDocument(text, source, spans)


def _spans(text: str) -> "Spans | None":
    """Where the rows are in one that is no JSON lines; None of one that is."""
    start = _skip(text, 0)
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    is_array = text.startswith("[", start)
    if not is_array and not text.startswith("{", start):
        return None
    if _is_value(text[start:line_end].rstrip(BLANKS)):
        # A line that is whole begins lines, but for an array that is all there is.
        is_alone = _skip(text, line_end) == len(text)
        return _items(text, start) if is_array and is_alone else None
    first = _end_of(text, _skip(text, start + 1) if is_array else start)
    if is_array:
        return _items(text, start) if first or text.startswith("[]", start) else None
    return None if first is None or first <= line_end else _objects(text, start)


def _is_value(line: str) -> bool:
    try:
        return _end_of(line, 0) == len(line)
    except RecursionError:
        return True  # its row is refused, and no other


def _items(text: str, start: int) -> Spans:
    """Those of the array that begins at `start`."""
    spans: Spans = array("q")
    at = _skip(text, start + 1)
    is_first = True
    while not (is_first and text.startswith("]", at)):
        end = _must_end(text, at)
        spans.extend((at, end))
        at = _skip(text, end)
        is_first = False
        if text.startswith("]", at):
            break
        if not text.startswith(",", at):
            raise _broken(text, at, "a JSON array: expected , or ]")
        at = _skip(text, at + 1)
    if (rest := _skip(text, at + 1)) < len(text):
        raise _broken(text, rest, "a JSON array: text behind its end")
    return spans


def _objects(text: str, at: int) -> Spans:
    spans: Spans = array("q")
    while at < len(text):
        end = _must_end(text, at)
        spans.extend((at, end))
        at = _skip(text, end)
    return spans


def _must_end(text: str, at: int) -> int:
    end = _end_of(text, at)
    if end is None:
        raise _broken(text, at, "JSON over several lines: a value that is broken, or never ends")
    return end


def _broken(text: str, at: int, told: str) -> UnreadableFileError:
    line = text.count("\n", 0, at) + 1
    return UnreadableFileError(f"not {told}, at line {line}: {shown(text[at : at + 40])}")


def _skip(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return at if found is None else found.end()


def _end_of(text: str, at: int) -> int | None:
    """Where the value ends that begins there; None of none."""
    try:
        return ENDS.raw_decode(text, at)[1]
    except ValueError:
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise RefusedError("not_json", f"{name} is not JSON")


# Not json.loads, which would make one a row.
JSON = json.JSONDecoder(parse_constant=_refuse_constant)
# A decimal is not to go through a float; a double is the same either way.
EXACT_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=Decimal)
# Only to see where values end: whatever is in them is for their own row to be refused for.
ENDS = json.JSONDecoder(parse_constant=str, parse_float=str, parse_int=str)
