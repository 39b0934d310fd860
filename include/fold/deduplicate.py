"""Events that a key has folded before: what a producer that delivers at least once delivers again.

Which they are is decided in the fold's order, by its clock, before the state function is called.
So it depends on the events alone, as all else does: not on the cut, nor on what the function does.
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
    """An event is a duplicate if its key has folded one of the same `by` within `within` before.

    `by` is a field of the events, or several. DefinitionError for one that says nothing.
    """

    by: str | tuple[str, ...]
    within: timedelta

    def __post_init__(self) -> None:
        if span_us("deduplicate", self.within) > NEVER_US - LAST_INSTANT_US:
            raise wrong("deduplicate", f"within={self.within} must be 10,000 years at most")

    @property
    def names(self) -> tuple[str, ...]:
        """The fields."""
        return (self.by,) if isinstance(self.by, str) else tuple(self.by)

    @property
    def within_us(self) -> int:
        """`within` in microseconds."""
        return self.within // MICROSECOND

    def __str__(self) -> str:
        return f"by {', '.join(self.names)} within {self.within}"


class Seen(NamedTuple):
    """A value that a key has folded, and the first instant at which it did: its window is from there."""

    by: Any
    at_us: int


@dataclass(frozen=True)
class SeenValues:
    """What a fold that deduplicates knows of its events: their values, and how those are stored."""

    of: Callable[[Any], Any]  # an event; None for one without a value
    column: Column
    within_us: int

    def is_over(self, at_us: int, until_us: int) -> bool:
        """Whether no event from `until_us` on can be a duplicate of one at `at_us`."""
        return at_us + self.within_us < until_us


def seen_values(given: Deduplicate, event: Any, columns: Sequence[Column]) -> SeenValues:
    """What is declared of these events. DefinitionError for fields that they do not have, or that
    are not equal to themselves, as a float need not be."""
    try:
        key = fold_key(given.names, event, columns)
    except DefinitionError as error:
        said = f"by={given.by!r}: {error.message}"
        raise wrong("deduplicate", said) from error
    is_one = len(given.names) == 1
    # The fields are named: values of others are not to be taken for theirs.
    by = f"by_{given.names[0]}" if is_one else "by"
    each = nested(Seen, [Column(by, key.shape), Column("at_us", Scalar("bigint", False, int))])
    items = Items(f"array<{each.kind}>", True, each)
    return SeenValues(
        key.of if is_one else _unless_empty(key.of),
        Column(SEEN, items),
        given.within_us,
    )


def _unless_empty(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def value(event: Any) -> Any:
        found = of(event)
        return None if all(part is None for part in found) else found

    return value
