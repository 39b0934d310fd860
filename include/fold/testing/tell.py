"""What a fold comes to, in words: two runs that come to the same say the same."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from include.fold.call_checks import CallChecks
from include.fold.definition import Key, KeyedFold
from include.fold.failures import StateFunctionError
from include.fold.testing.run import Happened, Ran, key_of_row, run

Arriving = tuple[Sequence[Happened], int]  # for one run, and the instant it comes to
WRONG_VALUE = (TypeError, ValueError, OverflowError)


class Told(NamedTuple):
    """Each part as text, so -0.0 is not 0.0, and True is not 1."""

    outputs: list[str]
    states: list[str]
    timeouts: list[str]
    rejected: list[str]
    error: str | None = None  # why it came to nothing

    def differs(self, other: "Told") -> str | None:
        """The first part that is not the same."""
        names = ("error", "outputs", "states", "timeouts", "rejected")
        return next((n for n in names if getattr(self, n) != getattr(other, n)), None)

    def part(self, name: str) -> str:
        """One of its parts, for a message."""
        if self.error is not None:
            return f"it fails: {self.error}"
        return f"{name} {', '.join(getattr(self, name)) or 'none'}"


def tell(
    fold: KeyedFold,
    parts: Iterable[Arriving],
    states: Mapping[Key, Any],
    restart: Callable[[KeyedFold, Ran], Ran] | None = None,
) -> Told:
    """What runs over `parts` come to, one after the other, beginning with `states`."""
    told = Told([], [], [], [])
    rows: dict[Any, str] = {}
    before: Ran | Mapping[Key, Any] = states
    try:
        for events, clock_us in parts:
            if restart is not None and isinstance(before, Ran):
                before = restart(fold, before)
            # New ones for each run, as an engine makes them: nothing can hold on to them.
            arriving = [Happened(fold.event._make(e), us) for e, us in events]  # type: ignore[attr-defined]
            before = ran = run(fold, arriving, clock=clock_us, state=before)
            _tell_outputs(fold, ran, rows)
            _tell_rejected(ran, told)
    except StateFunctionError as error:
        return told._replace(error=str(error))
    except WRONG_VALUE as error:
        return told._replace(error=f"{type(error).__name__}: {error}")
    told.outputs.extend(sorted(rows.values()))
    _tell_states(ran, told)
    return told


def _tell_outputs(fold: KeyedFold, ran: Ran, rows: dict[Any, str]) -> None:
    """Into the rows of the table: an append stream's all stay, an update stream's by key."""
    checks = CallChecks(fold)
    is_append = fold.output_mode == "append"
    for removed in ran.removed:
        rows.pop(removed, None)
    for row, at_us in zip(ran.outputs, ran.emitted_at_us, strict=True):
        plain = fold.output._make(checks.output(row))  # type: ignore[attr-defined]
        name = len(rows) if is_append else key_of_row(fold, plain)
        rows[name] = f"{plain!r} at {at_us}"


def _tell_rejected(ran: Ran, told: Told) -> None:
    for call in ran.rejected:
        told.rejected.append(f"{call.cause} of {call.key} at {call.at_us} ({call.error})")


def _tell_states(ran: Ran, told: Told) -> None:
    told.rejected.sort()
    known = ((key, each.state) for key, each in ran.known.items() if each.state is not None)
    told.states.extend(sorted(f"{key!r}: {state!r}" for key, state in known))
    told.timeouts.extend(sorted(f"{key!r}: {at}" for key, at in ran.timeouts.items()))
    told.timeouts.extend(sorted(f"{key!r}: {timers}" for key, timers in ran.timers.items()))
