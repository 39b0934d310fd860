"""What goes through the fold and what comes out of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from include.fold.definition import Key


class KeyRun(NamedTuple):
    """The settled events of one key: positions [start, end) of the bucket's ordered events."""

    key: Key
    start: int
    end: int


class DeadLetter(NamedTuple):
    """One call of the state function that failed, in a stream with `on_error="dead_letter"`.

    All texts are bounded, and can be written as UTF-8.
    """

    key: str  # as text, whatever its type
    at_us: int  # of the event or timeout, on the fold's clock
    number: int  # among those of the key at that instant, from 0
    cause: str  # "event" or "timeout"
    event: str | None  # JSON; None for a timeout
    error: str  # the class of the exception
    message: str
    traceback: str | None  # from the state function on; None when it had returned by then


class Emitted(NamedTuple):
    """What the fold emitted: outputs, and beside each the time that emitted it.

    That is the time of the event, or the instant of the timeout. In an update stream there is
    one row per touched key, and `removed` says whether the key's state is gone; in an append
    stream `removed` stays empty. So does `dead_letters` where the first failed call stops the fold.
    `duplicates` were not given to the function.
    """

    rows: list[Any]
    emitted_at_us: list[int]
    removed: list[bool]
    dead_letters: Sequence[DeadLetter] = ()
    duplicates: int = 0
