"""The errors that stop the fold, and the decimal context that functions reckon by."""

from datetime import timedelta
from decimal import Context
from typing import Any

from include.fold.admission import EPOCH, US_PER_MS
from include.fold.definition import Key, KeyedFold
from include.fold.group_state import GroupState
from include.fold.records import NO_RECORDS, DefinitionError
from include.lake.errors import StatefulError

# Timeouts of one key without an event between them, after which their pace is looked at. As
# many take some milliseconds, so a loop is found at once.
TIMEOUTS_IN_A_ROW = 10_000
# On average; faster ones are a loop. Spark's own timers are whole milliseconds: no function
# that was written for them can be faster, and such a pace would be 86 million calls a day.
FASTEST_TIMEOUTS_US = US_PER_MS


class StateFunctionError(RuntimeError):
    """The state function failed, or broke a rule: the message names stream, function, key and instant."""


class BrokenInvariantError(StatefulError, RuntimeError):
    """The fold was handed something that must not exist: a row before what it has settled."""


class TimeoutLoopError(RuntimeError):
    """The function sets timeouts in a loop: the stream's clock hardly moves between them.

    It stops the stream, and is never a dead letter: where a run of timeouts is cut into batches must not
    show in results, and in whether there are any it may.
    """


# Not the function's fault, or not known to be: these stop the stream. (As do KeyboardInterrupt
# and SystemExit, which are no `Exception`.) How deep calls can go is a matter of who called the
# fold: a worker, a driver, a page.
NEVER_DEAD_LETTERS = (MemoryError, RecursionError, BrokenInvariantError)


def refuse_timeout_loop(first_us: int, next_us: int) -> None:
    """Raise TimeoutLoopError when TIMEOUTS_IN_A_ROW from `first_us` on led only to `next_us`."""
    if next_us - first_us <= TIMEOUTS_IN_A_ROW * FASTEST_TIMEOUTS_US:
        raise TimeoutLoopError(
            f"{TIMEOUTS_IN_A_ROW:,} timeouts in a row, without an event between them, took only "
            f"{(next_us - first_us) / 1e6:g} s of the stream's clock: the function sets its "
            "timeout again and again, each a millisecond or less ahead. Set it further ahead, or "
            "not at all when state.hasTimedOut"
        )


def failure(
    fold: KeyedFold, key: Key, group: GroupState[Any], error: Exception
) -> StateFunctionError:
    """`error` with what the state function was called for."""
    at = EPOCH + timedelta(microseconds=group.clock_us)
    called = "timeout" if group.hasTimedOut else "event"
    if group.timer is not None:
        called = f"timer {group.timer}"
    return StateFunctionError(
        f"{function_text(fold)} failed for {fold.keys.text()} {key!r} ({called} at "
        f"{at:%Y-%m-%dT%H:%M:%S.%fZ}): {type(error).__name__}: {error}. Mend it and run the stream again; "
        'or give its entry on_error="dead_letter", by which such calls are kept apart and the rest goes on'
    )


def is_row(fold: KeyedFold, row: Any) -> bool:
    """Whether what was yielded has, as far as it tells, as many values as the output has fields, in
    their order."""
    if isinstance(row, NO_RECORDS):
        return False
    if not hasattr(row, "__len__"):
        return hasattr(row, "__iter__")
    return len(row) == len(fold.output_columns)


def no_row(fold: KeyedFold, row: Any) -> DefinitionError:
    """What is said of one that has not."""
    names = ", ".join(column.name for column in fold.output_columns)
    return DefinitionError(
        f"{function_name(fold)} yielded {row!r}, but a row of its output has {names}",
        subject=function_name(fold),
    )


def function_text(fold: KeyedFold) -> str:
    """The state function, and of which stream."""
    stream = f"stream {fold.stream}: " if fold.stream else ""
    return f"{stream}{function_name(fold)}"


def function_name(fold: KeyedFold) -> str:
    """The name of the state function, for messages."""
    function = getattr(fold.function, "function", fold.function)
    return getattr(function, "__name__", repr(function))


# What functions reckon by. Python's own context rounds a sum to 28 digits without a word, and a
# column has up to 38. No sum or product of two such columns has more than these.
ARITHMETIC = Context(prec=76)
