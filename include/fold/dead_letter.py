"""The record of a call that failed, in a stream that goes on."""

import base64
import json
import linecache
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from enum import Enum
from itertools import dropwhile
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

from include.fold.definition import Key
from include.fold.emitted import DeadLetter

# Bytes of UTF-8. A row stays small when every event of a batch is a dead letter.
KEY_BYTES = 1024
EVENT_BYTES = 16 * 1024
MESSAGE_BYTES = 1024
TRACEBACK_BYTES = 4 * 1024
FIRST_CALLS, LAST_CALLS = 4, 6  # of a deeper traceback
CAUSES = 3
CUT = "…"
OURS = "include.fold."


def describe(key: Key, at_us: int, number: int, event: Any, error: Exception) -> DeadLetter:
    """The record of a call that failed; `event` is None for a timeout."""
    return DeadLetter(
        key=cut(key_text(key), KEY_BYTES),
        at_us=at_us,
        number=number,
        cause="timeout" if event is None else "event",
        event=None if event is None else cut(as_json(event), EVENT_BYTES),
        error=_class_name(error),
        message=cut(_message(error), MESSAGE_BYTES),
        traceback=cut("\n".join(_lines(error)), TRACEBACK_BYTES) or None,
    )


def as_json(event: Any) -> str:
    """The event's fields by name, nested records too."""
    return json.dumps(_plain(event), ensure_ascii=False)


def key_text(key: Key) -> str:
    """A key as text; of several columns, JSON."""
    return as_json(key) if isinstance(key, tuple) else str(_plain(key))


def _plain(value: Any) -> Any:
    """What JSON can say of it; bytes as base64, times and decimals as text."""
    if hasattr(value, "_asdict"):
        return {name: _plain(of) for name, of in value._asdict().items()}
    if isinstance(value, dict):
        return {str(key): _plain(of) for key, of in value.items()}
    if isinstance(value, tuple):
        return list(map(_plain, value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def cut(text: str, size: int) -> str:
    """`text` in at most `size` bytes of UTF-8; what is no text in it is escaped."""
    raw = text[: size + 1].encode("utf-8", "backslashreplace")
    if len(raw) <= size:
        return raw.decode()
    return raw[: size - len(CUT.encode())].decode("utf-8", "ignore") + CUT


def _class_name(error: BaseException) -> str:
    kind = type(error)
    builtin = kind.__module__ == "builtins"
    name = kind.__qualname__ if builtin else f"{kind.__module__}.{kind.__qualname__}"
    return cut(name, MESSAGE_BYTES)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 (an exception that cannot even say what it is)
        return f"(its text cannot be had: {type(other).__name__})"


def _lines(error: BaseException) -> Iterator[str]:
    """The calls from the state function on, and those of what caused the error."""
    yield from _calls(error.__traceback__)
    for _ in range(CAUSES):
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            return
        error = cause
        yield f"caused by {_class_name(error)}: {cut(_message(error), MESSAGE_BYTES)}"
        yield from _calls(error.__traceback__)


def _calls(traceback: TracebackType | None) -> list[str]:
    # Those by which the fold called the function say nothing of the function.
    frames = [*dropwhile(lambda each: _module(each[0]).startswith(OURS), walk_tb(traceback))]
    if len(frames) <= FIRST_CALLS + LAST_CALLS:
        return [_line(*frame) for frame in frames]
    # Not how many: of an endless recursion that depends on who called.
    first, last = frames[:FIRST_CALLS], frames[-LAST_CALLS:]
    return [*(_line(*frame) for frame in first), CUT, *(_line(*frame) for frame in last)]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))


def _line(frame: FrameType, number: int) -> str:
    code = frame.f_code
    source = linecache.getline(code.co_filename, number, frame.f_globals).strip()
    return f"{_module(frame)}:{number} in {code.co_qualname}" + (f": {source}" if source else "")
