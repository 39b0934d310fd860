"""Words and figures for people who read a terminal or a task's log."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(count: float) -> str:
    """`count` bytes in the unit that leaves few digits: 1.5 MiB."""
    scaled, unit = float(count), 0
    while abs(scaled) >= 1024 and unit < len(UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{scaled:,.1f} {UNITS[unit]}" if unit else f"{count:,.0f} bytes"


def counted(count: int, thing: str) -> str:
    """How many of a thing: 1 late row, 2,000 late rows, 0 batches."""
    many = "" if count == 1 else "es" if thing.endswith("ch") else "s"
    return f"{count:,} {thing}{many}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is none: what it may have been, if anything."""
    meant = get_close_matches(name, known, n=1)
    return f". Did you mean {meant[0]}?" if meant else ""


def text_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()
) -> list[str]:
    """Lines of rows below their names; the columns `left` hold words, the others numbers."""
    table = [names, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(names))]
    lines = []
    for row in table:
        cells = (
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines


def first_names(names: Sequence[str], count: int = 3) -> str:
    """The first few of `names`, on one line whatever is in them."""
    shown = ", ".join(
        "".join(c if c.isprintable() else "?" for c in name) for name in names[:count]
    )
    return shown if len(names) <= count else f"{shown} and {len(names) - count:,} more"
