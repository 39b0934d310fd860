"""The errors that stop the fold, the records of calls that failed, and the decimal context of functions."""

import base64
import json
import linecache
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Context, Decimal
from enum import Enum
from itertools import dropwhile, starmap
from traceback import walk_tb
from types import FrameType
from typing import Any

from include.fold.admission import EPOCH, US_PER_MS
from include.fold.definition import DeadLetter, Key, KeyedFold
from include.fold.group_state import GroupState
from include.lake.errors import StatefulError

# Timeouts of one key without an event between them, after which their pace is looked at.
TIMEOUTS_IN_A_ROW = 10_000
# On average; faster ones are a loop. Spark's own timers are whole milliseconds.
FASTEST_TIMEOUTS_US = US_PER_MS


class StateFunctionError(RuntimeError):
    """The state function failed, or broke a rule: the message names stream, function, key and instant."""


class BrokenInvariantError(StatefulError, RuntimeError):
    """The fold was handed something that must not exist: a row before what it has completed."""


class TimeoutLoopError(RuntimeError):
    """The function sets timeouts in a loop; never a dead letter, as it may depend on the cut."""


# Not the function's fault, or not known to be: these stop the stream. How deep calls can go depends on
# who called the fold: a worker, a driver, a page.
NEVER_DEAD_LETTERS = (MemoryError, RecursionError, BrokenInvariantError)


def refuse_timeout_loop(first_us: int, next_us: int) -> None:
    """Raise TimeoutLoopError when TIMEOUTS_IN_A_ROW from `first_us` on led only to `next_us`."""
    if next_us - first_us <= TIMEOUTS_IN_A_ROW * FASTEST_TIMEOUTS_US:
        raise TimeoutLoopError(
            f"{TIMEOUTS_IN_A_ROW:,} timeouts in a row took {(next_us - first_us) / 1e6:g} s of the "
            "stream's clock: set them further ahead, or not at all when state.hasTimedOut"
        )


def failure(
    fold: KeyedFold, key: Key, group: GroupState[Any], error: Exception
) -> StateFunctionError:
    """Return the error of a call, with its stream, function, key, and event or timeout."""
    at = EPOCH + timedelta(microseconds=group.clock_us)
    called = "timeout" if group.hasTimedOut else "event"
    if group.timer is not None:
        called = f"timer {group.timer}"
    stream = f"stream {fold.stream}: " if fold.stream else ""
    return StateFunctionError(
        f"{stream}{function_name(fold)} failed for {fold.keys.text()} {key!r} ({called} at "
        f"{at:%Y-%m-%dT%H:%M:%S.%fZ}): {type(error).__name__}: {error}. Mend it and run the stream again; "
        'or give its entry on_error="dead_letter", by which such calls are kept apart and the rest goes on'
    )


def function_name(fold: KeyedFold) -> str:
    function = getattr(fold.function, "function", fold.function)
    return getattr(function, "__name__", repr(function))


# Python's own context rounds a sum to 28 digits without a word; no sum or product of two columns
# of 38 digits has more than these.
ARITHMETIC = Context(prec=76)


# Bytes of UTF-8. A row stays small when every event of a batch is a dead letter.
KEY_BYTES = 1024
EVENT_BYTES = 16 * 1024
MESSAGE_BYTES = 1024
TRACEBACK_BYTES = 4 * 1024
LAST_CALLS = 10  # of a deeper traceback
CAUSES = 3
CUT = "…"
OURS = "include.fold."


def describe(key: Key, at_us: int, number: int, event: Any, error: Exception) -> DeadLetter:
    """Return the record of a call that failed; `event` is None for a timeout."""
    return DeadLetter(
        key=cut(key_text(key), KEY_BYTES),
        at_us=at_us,
        number=number,
        cause="timeout" if event is None else "event",
        event=None if event is None else cut(as_json(event), EVENT_BYTES),
        error=_class_name(error),
        message=cut(_message(error), MESSAGE_BYTES),
        traceback=cut("\n".join(_calls(error)), TRACEBACK_BYTES) or None,
    )


def as_json(event: Any) -> str:
    """Return a record as a JSON object of its fields, nested records too."""
    return json.dumps(_plain(event), ensure_ascii=False)


def key_text(key: Key) -> str:
    """Return a key as text; of several columns, JSON."""
    return as_json(key) if isinstance(key, tuple) else str(_plain(key))


def _plain(value: Any) -> Any:
    """Return the value as JSON can hold it: bytes as base64, times and decimals as text."""
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
    """Return `text` in at most `size` bytes of UTF-8; half surrogate pairs are escaped."""
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


def _calls(error: BaseException, causes: int = CAUSES) -> Iterator[str]:
    """Yield the last calls from the state function on, and those of the error's causes."""
    calls = dropwhile(lambda call: _module(call[0]).startswith(OURS), walk_tb(error.__traceback__))
    yield from starmap(_line, [*calls][-LAST_CALLS:])
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and causes:
        yield f"caused by {_class_name(cause)}: {cut(_message(cause), MESSAGE_BYTES)}"
        yield from _calls(cause, causes - 1)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))


def _line(frame: FrameType, number: int) -> str:
    source = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
    return f"{_module(frame)}:{number} in {frame.f_code.co_qualname}: {source}"
