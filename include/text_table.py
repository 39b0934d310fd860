"""Figures for people who read a task log."""

from collections.abc import Sequence

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(count: float) -> str:
    """`count` bytes in the unit that leaves few digits: 1.5 MiB."""
    scaled, unit = float(count), 0
    while abs(scaled) >= 1024 and unit < len(UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{scaled:,.1f} {UNITS[unit]}" if unit else f"{count:,.0f} bytes"


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
