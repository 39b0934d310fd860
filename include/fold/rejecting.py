"""The calls of a stream that rejects: a call that fails is recorded, and as if never made.

What is rejected must not depend on how input was cut. So there is one call per event, in
update streams too, and after each call all is checked that would be checked at the end of a
pass: the state, the outputs, the projection.
"""

import base64
import json
import linecache
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from enum import Enum
from types import FrameType, TracebackType
from typing import Any

from include.fold.admission import NEVER_US
from include.fold.call_checks import CallChecks
from include.fold.definition import Key, KeyedFold
from include.fold.emitted import Emitted, KeyRun, Rejected
from include.fold.failures import BrokenInvariantError, TimeoutPace, check_arithmetic, function_name
from include.fold.group_state import GroupState
from include.fold.product_table import checked_projection, project
from include.fold.states import States, end_us

# Bytes of UTF-8. A row stays small when every event of a batch is rejected.
KEY_BYTES = 1024
EVENT_BYTES = 16 * 1024
MESSAGE_BYTES = 1024
TRACEBACK_BYTES = 4 * 1024
FIRST_CALLS, LAST_CALLS = 4, 6  # of a deeper traceback
CAUSES = 3
CUT = "…"
OURS = "include.fold."


def describe(key: Key, at_us: int, number: int, event: Any, error: Exception) -> Rejected:
    """The record of a call that failed; `event` is None for a timeout."""
    return Rejected(
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
    return (
        value.isoformat()
        if isinstance(value, date)
        else str(value)
        if isinstance(value, Decimal)
        else value
    )


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
    frames: list[tuple[FrameType, int]] = []
    while traceback is not None:
        # Those by which the fold called the function say nothing of the function.
        if frames or not _module(traceback.tb_frame).startswith(OURS):
            frames.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
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


# Not the function's fault, or not known to be: these stop the stream. (As do KeyboardInterrupt
# and SystemExit, which are no `Exception`.) How deep calls can go is a matter of who called the
# fold: a worker, a driver, a page.
NEVER_REJECTED = (MemoryError, RecursionError, BrokenInvariantError)


class RejectingCalls:
    """The calls of the state function in one pass: what they emit, and which are rejected.

    A rejected event leaves its key's state and timeout as they were. A rejected timeout leaves
    the state as it was, and has fired.
    """

    def __init__(
        self,
        fold: KeyedFold,
        states: States,
        events: Sequence[Any],
        times_us: Sequence[int],
        until_us: int,
    ) -> None:
        self._rejected: list[Rejected] = []
        self.emitted = Emitted([], [], [], self._rejected)
        self.key: Key = ""
        self.group: GroupState[Any] = fold.group_state()
        self._fold = fold
        self._checks = CallChecks(fold)
        self._states = states
        self._events = events
        self._times_us = times_us
        self._until_us = until_us
        # Of the key at hand, after the calls so far.
        self._state: Any = None
        self._timeout_us = NEVER_US
        self._changed_us: int | None = None  # the last call that was not rejected
        self._touched_us = 0  # the same, or what the state's last change was before this pass
        self._projected: Any = None
        self._rejected_us: int | None = None
        self._number = 0

    def fold_all(self, runs: Iterable[KeyRun]) -> None:
        """The calls for all of these keys. Without timeouts there are just none to fire."""
        for run in runs:
            self._fold_run(run)

    def _fold_run(self, run: KeyRun) -> None:
        key, start, end = run
        self._begin(key)
        timeout_before_us = self._timeout_us
        for position in range(start, end):
            time_us = self._times_us[position]
            self._fire(time_us)
            self._call(time_us, (self._events[position],))
        self._fire(self._until_us)
        if self._changed_us is not None:
            self._states.put(key, self._state, self._changed_us, self._timeout_us)
            self._emit_projection(self._changed_us)
        elif self._timeout_us != timeout_before_us:  # it has fired, in vain
            self._states.put(key, self._state, self._states.changed_at_of(key), self._timeout_us)

    def _begin(self, key: Key) -> None:
        self.key = key
        self._state = self._states.get(key)
        self._timeout_us = self._states.timeout_of(key) if self._fold.times_out else NEVER_US
        self._changed_us = self._rejected_us = None
        self._touched_us = self._states.changed_at_of(key)

    def _fire(self, before_us: int) -> None:
        """Fire the timeout, and those it sets in turn, before an instant; unless the state ends."""
        pace = TimeoutPace()
        while True:
            end = end_us(self._fold.ttl_us, self._state, self._touched_us)
            at_us = min(self._timeout_us, end)
            if at_us >= before_us:
                return
            if self._timeout_us > end:
                self._end(end)
                continue
            self._timeout_us = NEVER_US
            self._call(at_us, ())
            if self._timeout_us < before_us:
                pace.fired(at_us, self._timeout_us)

    def _end(self, at_us: int) -> None:
        self._state, self._timeout_us, self._changed_us = None, NEVER_US, at_us
        if self._fold.output_mode == "update":
            self._projected = project(self._fold, self.key, None)

    def _call(self, clock_us: int, events: tuple[Any, ...]) -> None:
        """For one event, or for none: a timeout."""
        self.group.begin_call(self._state, clock_us, timed_out=not events)
        try:
            state, outputs = self._made_of(events)
        except NEVER_REJECTED:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it is recorded)
            # Another call may set back what this one has changed, before it is looked at.
            check_arithmetic(function_name(self._fold))
            self._reject(clock_us, events, error)
            return
        self._state, self._timeout_us = state, self.group.timeout_at_us
        self._changed_us = self._touched_us = clock_us
        self.emitted.rows.extend(outputs)
        self.emitted.emitted_at_us.extend([clock_us] * len(outputs))

    def _made_of(self, events: tuple[Any, ...]) -> tuple[Any, list[Any]]:
        """The state after a call, and what it emits by itself: in an update stream nothing."""
        # To its end, before anything is looked at: what it yields last may be what it fails with.
        yielded = list(self._fold.function(self.key, iter(events), self.group))
        state = self._checks.state(self.group.getOption)
        if self._fold.output_mode == "append":
            return state, [self._checks.output(row) for row in yielded]
        returned = yielded[-1] if yielded else None
        row = checked_projection(self._fold, self.key, state, returned)
        self._projected = row if state is None else self._checks.output(row)
        return state, []

    def _emit_projection(self, changed_us: int) -> None:
        """The row of an update stream's key after its last call that was not rejected."""
        if self._fold.output_mode == "update":
            self.emitted.rows.append(self._projected)
            self.emitted.emitted_at_us.append(changed_us)
            self.emitted.removed.append(self._state is None)

    def _reject(self, clock_us: int, events: tuple[Any, ...], error: Exception) -> None:
        self._number = self._number + 1 if clock_us == self._rejected_us else 0
        self._rejected_us = clock_us
        event = events[0] if events else None
        self._rejected.append(describe(self.key, clock_us, self._number, event, error))
