"""The values that states keep of a field: the code in a stream's file, and the same in plain Python.

A step makes what is kept of what was kept before and of the newest event.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.simulator.kinds import FLOAT, INT, NESTED, TEXT, Kind, with_all_digits

# `old` is what was kept, `of` the event's field, `n` the count before, `record` the class of a pair.
HELPERS = """
def tallied(old, of):
    return old if of is None else {**old, of: old.get(of, 0) + 1}

def greatest(old, of):
    return max((each for each in (old, of) if each is not None), default=None)

def written(record, old, of):
    total = (old.m0 if old else Decimal(0)) + (0 if of is None else of)
    return record(total.normalize(), str(old.m0) if old else "")

def ordered(record, old, of):
    counts = old.m0 if old else {}
    of = {} if of is None else {of: counts.get(of, 0) + 1}
    return record({**of, **{k: v for k, v in counts.items() if k not in of}}, tuple(counts))
"""


@dataclass(frozen=True)
class Keeping:
    """A way to keep something."""

    fits: Callable[[Kind], bool]
    kind: Callable[[Kind], Kind]  # of what is kept
    text: str
    step: Callable[[Any, Any, int], Any]  # of `old`, `of` and `n`
    begins: Callable[[Kind], Any] = lambda of: None


def _any(kind: Kind) -> bool:
    return True


def _tallied(old: dict[Any, int] | None, of: Any, n: int) -> dict[Any, int]:
    counts = dict(old or {})
    if of is not None:
        counts[of] = counts.get(of, 0) + 1
    return counts


def _written(kind: Kind, old: tuple[Decimal, str] | None, of: Decimal | None) -> Any:
    total = (old[0] if old else Decimal(0)) + (of or 0)
    return total, with_all_digits(kind, old[0]) if old else ""


def _ordered(old: tuple[dict[Any, int], Any] | None, of: Any, n: int) -> Any:
    counts = old[0] if old else {}
    return _tallied(counts, of, n), tuple(sorted(counts))


def _greatest(old: Any, of: Any, n: int) -> Any:
    if old is None or of is None:
        return of if old is None else old
    return of if of > old else old


def _zero(of: Kind) -> Any:
    return {"int": 0, "float": 0.0}.get(of.name, Decimal(0))


SUMS = {
    "int": INT,
    "float": FLOAT,
    "decimal(12,2)": Kind("decimal(24,2)"),
    "decimal(38,18)": Kind("decimal(38,18)"),
}
KEEPINGS = {
    "last": Keeping(_any, lambda of: of, "of", lambda old, of, n: of),
    "first": Keeping(
        _any, lambda of: of, "old if known else of", lambda old, of, n: of if n == 0 else old
    ),
    "lasts": Keeping(
        _any,
        lambda of: Kind("tuple", parts=(of,)),
        "((old if known else ()) + (of,))[-3:]",
        lambda old, of, n: [*(old or ()), of][-3:],
    ),
    "turns": Keeping(
        _any,
        lambda of: Kind("dict[int]", parts=(of,)),
        "{**(old if known else {}), n % 2: of}",
        lambda old, of, n: (old or {}) | {n % 2: of},
    ),
    "pair": Keeping(
        _any,
        lambda of: Kind("record", parts=(of.or_none(), of), nullable=True),
        "record(old.m1 if old else None, of)",
        lambda old, of, n: (old[1] if old else None, of),
    ),
    "tally": Keeping(
        lambda of: of.name in ("int", "str"),
        lambda of: Kind(f"dict[{of.name}]", parts=(INT,)),
        "tallied(old if known else {}, of)",
        _tallied,
    ),
    # What the function sees of a state is what the store gives back: all declared digits, and
    # a dict in the order of its keys.
    **{
        f"written {name}": Keeping(
            lambda of, name=name: of.name == name,
            lambda of: Kind("record", parts=(SUMS[of.name], TEXT), nullable=True),
            "written(record, old, of)",
            lambda old, of, n, name=name: _written(SUMS[name], old, of),
        )
        for name in ("decimal(12,2)", "decimal(38,18)")
    },
    "ordered": Keeping(
        lambda of: of.name in ("int", "str"),
        lambda of: Kind(
            "record",
            parts=(
                Kind(f"dict[{of.name}]", parts=(INT,)),
                Kind("tuple", parts=(Kind(of.name, of.sql),)),
            ),
            nullable=True,
        ),
        "ordered(record, old, of)",
        _ordered,
    ),
    "sum": Keeping(
        lambda of: of.name in SUMS,
        lambda of: SUMS[of.name],
        "(old if known else begins) + (0 if of is None else of)",
        lambda old, of, n: old if of is None else old + of,
        _zero,
    ),
    "greatest": Keeping(
        lambda of: of.name not in (*NESTED, "float", "bool", "Color", "Level"),
        lambda of: of.or_none(),
        "greatest(old, of)",
        _greatest,
    ),
}


def text_of(number: int, keeping: str, of: Kind, record: str | None) -> str:
    """The step as a stream's file has it, of what the state calls `g<number>`."""
    begins = KEEPINGS[keeping].begins(of)
    return f"""
def g{number}(known, n, of):
    old, begins, record = known.g{number} if known else None, {begins!r}, {record}
    return {KEEPINGS[keeping].text}
"""
