"""What a state goes back to: all events before it, or a savepoint whose states were mapped.

A mapping is the user's word: the state that it makes need not be the one that the same code
makes of all events. So the two have names of their own, and no replay begins with one and
goes on as the other. The name stands where a code's fingerprint does.

A stream with on_error="quarantine" has the fingerprint that it has with "stop", and REJECTS behind
it. What stopped at the first failed call holds no failed call, so states of `x` serve `x!`. Those
of `x!` may lack what `x` would have stopped at: they do not serve `x`.
"""

from collections.abc import Mapping
from typing import Any

MAPPED_FROM = "+"
REJECTS = "!"


def code_of(lineage: str) -> str:
    """The fingerprint of the code alone."""
    return lineage.partition(MAPPED_FROM)[0]


def mapped_lineage(code: str, savepoint_id: str) -> str:
    """Of states that `code` makes from those of a savepoint of an older schema."""
    return f"{code_of(code)}{MAPPED_FROM}{savepoint_id}"


def is_mapped(lineage: str) -> bool:
    """Whether the states go back to a savepoint whose states were mapped."""
    return MAPPED_FROM in lineage


def mapped_savepoint(lineage: str) -> str | None:
    """The savepoint whose states were mapped; None where none were."""
    return lineage.partition(MAPPED_FROM)[2] or None


def has_mapped(row: Mapping[str, Any] | None) -> bool:
    """Whether those of a generation do, whose row of `ops/generations` this is."""
    return is_mapped((row or {}).get("code") or "")


def rejects(lineage: str) -> bool:
    """Whether a fold by that name goes on after a failed call."""
    return code_of(lineage).endswith(REJECTS)


def same_code(lineage: str | None, other: str | None) -> bool:
    """Whether the same code made them, whatever they go back to."""
    if lineage is None or other is None:
        return lineage == other
    return code_of(lineage) == code_of(other)


def serves(lineage: str | None, wanted: str) -> bool:
    """Whether whoever goes by the name `wanted` may go on with states of that `lineage`."""
    return lineage is not None and lineage in serving(wanted)


def serving(wanted: str) -> set[str]:
    """The lineages whose states serve whoever goes by the name `wanted`."""
    return {wanted, wanted.replace(REJECTS, "")}


def current_lineage(row: Mapping[str, Any] | None, code: str) -> str:
    """The lineage that a stream with this `code` goes on with: that of its current generation,
    whose row of `ops/generations` this is, if the same code made it."""
    if not row or row["code"] is None:
        return code
    known = str(row["code"])
    if same_code(known, code):
        return known
    if is_mapped(known) and serves(code_of(known), code):  # it rejects from now on
        return f"{code}{MAPPED_FROM}{known.partition(MAPPED_FROM)[2]}"
    return code
