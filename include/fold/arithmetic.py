"""What functions reckon decimals by: the same for each call, whichever were made before it."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Context, getcontext, localcontext

from include.fold.failures import StateFunctionError

# Python's own context rounds a sum to 28 digits without a word, and a column has up to 38. No sum
# or product of two such columns has more than these.
ARITHMETIC = Context(prec=76)
# All that results depend on. Flags are only what has happened.
KEPT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps")


class ArithmeticChangedError(StateFunctionError):
    """A function has changed decimal.getcontext() for the calls after it.

    It stops the stream, never rejects: which calls those are is a matter of how input was cut.
    """


@contextmanager
def arithmetic(of: str) -> Iterator[None]:
    """Functions called within reckon by ARITHMETIC. `of` says what they are, for the message.

    Looked at once for all calls: to set it back for each costs more than many a call.
    """
    with localcontext(ARITHMETIC):
        yield
        check_arithmetic(of)


def check_arithmetic(of: str) -> None:
    """Raise ArithmeticChangedError when a call so far has changed what those after it reckon by."""
    now = getcontext()
    changed = [name for name in KEPT if getattr(now, name) != getattr(ARITHMETIC, name)]
    if changed:
        raise ArithmeticChangedError(
            f"{of} has changed {', '.join(changed)} of decimal.getcontext() for all calls after it: "
            "reckon within `with decimal.localcontext() as context:`, which sets it back"
        )
