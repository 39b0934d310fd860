"""Events that a key has folded before: what a producer that delivers at least once delivers again.

Decided in the fold's order, by its clock, before the state function is called: so by events alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from include.fold.admission import LAST_INSTANT_US, MICROSECOND, NEVER_US
from include.fold.group_state import span_us
from include.fold.keys import fold_key
from include.fold.records import Column, DefinitionError, Items, Scalar, nested, wrong

SEEN = "seen"  # the column of a key's values, beside its state


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """An event is a duplicate if its key has folded one of the same `by` within `within` before."""

    by: str | tuple[str, ...]  # fields of the events
    within: timedelta

    def __post_init__(self) -> None:
        if span_us("deduplicate", self.within) > NEVER_US - LAST_INSTANT_US:
            raise wrong("deduplicate", f"within={self.within} must be 10,000 years at most")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.by,) if isinstance(self.by, str) else tuple(self.by)

    @property
    def within_us(self) -> int:
        return self.within // MICROSECOND

    def __str__(self) -> str:
        return f"by {', '.join(self.names)} within {self.within}"


class Seen(NamedTuple):
    """A value that a key has folded, and the first instant at which it did."""

    by: Any
    at_us: int


@dataclass(frozen=True)
class SeenValues:
    """The values of a fold's events, and how those are stored."""

    of: Callable[[Any], Any]  # an event; None for one without a value
    column: Column
    within_us: int

    def is_over(self, at_us: int, until_us: int) -> bool:
        """True if no event from `until_us` on can be a duplicate of one at `at_us`."""
        return at_us + self.within_us < until_us


def seen_values(given: Deduplicate, event: Any, columns: Sequence[Column]) -> SeenValues:
    """The declared values; DefinitionError for fields that are missing, or floats."""
    try:
        key = fold_key(given.names, event, columns)
    except DefinitionError as error:
        raise wrong("deduplicate", f"by={given.by!r}: {error.message}") from error
    is_one = len(given.names) == 1
    # The fields are named: values of others are not to be taken for theirs.
    by = f"by_{given.names[0]}" if is_one else "by"
    each = nested(Seen, [Column(by, key.shape), Column("at_us", Scalar("bigint", False, int))])
    items = Items(f"array<{each.kind}>", True, each)

    def value(event: Any) -> Any:
        found = key.of(event)
        return None if all(part is None for part in found) else found

    return SeenValues(key.of if is_one else value, Column(SEEN, items), given.within_us)
