"""Texts, figures and tables for a terminal or a task's log."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from difflib import get_close_matches
from itertools import pairwise

# Characters that a terminal takes for commands or writes from right to left, and half surrogate pairs.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
FIGURE = ("", "-", "<", *"0123456789")  # the first characters of numbers
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def printable(text: str) -> str:
    """Return the text with escapes such as \\x1b for what must not reach a terminal: names of files and values
    of rows come from others."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def in_one_line(text: str) -> str:
    """Return `printable` text with line ends and tabs as escapes, too."""
    return printable(text).replace("\n", r"\n").replace("\t", r"\t")


def markdown_cell(text: str) -> str:
    """Return the text for one cell of a table of Markdown."""
    return text.replace("|", "\\|").replace("\n", " ")


def bytes_text(count: float) -> str:
    """Return `count` bytes in the unit that leaves few digits.

    >>> bytes_text(1_572_864)
    '1.5 MiB'
    """
    scaled, unit = float(count), 0
    while abs(scaled) >= 1024 and unit < len(UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{scaled:,.1f} {UNITS[unit]}" if unit else f"{count:,.0f} bytes"


def span_text(seconds: float) -> str:
    """Return a length of time in its largest unit and the next.

    >>> span_text(12_000)
    '3 h 20 min'
    """
    if seconds < 0:
        return f"-{span_text(-seconds)}"
    for (length, name), (part, part_name) in pairwise((*SPANS, (1, ""))):
        if seconds >= length:
            rest = int(seconds % length) // part
            return f"{int(seconds) // length} {name}" + (f" {rest} {part_name}" if rest else "")
    return f"{seconds:.1g} s"


def counted(count: int, thing: str) -> str:
    """Return a number of things: 1 late row, 2,000 late rows, 0 batches."""
    many = "" if count == 1 else "es" if thing.endswith("ch") else "s"
    return f"{count:,} {thing}{many}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the known one that is most like it, if any."""
    meant = get_close_matches(name, known, n=1)
    return f". Did you mean {meant[0]}?" if meant else ""


def value_text(value: object) -> str:
    """Return a value of a table on one line: records, dicts and lists as JSON, decimals with their digits."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, (Mapping, list, tuple)):
        return _json(value)
    return "" if value is None else str(value)


def _json(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_json(value_text(n))}:{_json(of)}' for n, of in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_json, value))}]"
    if isinstance(value, Decimal):
        return value_text(value)
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return json.dumps(value_text(value), ensure_ascii=False)


def cut(text: str, width: int) -> str:
    """Return one line of at most `width` characters, without any that would move the cursor."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: width + 1])
    return shown if len(shown) <= width else f"{shown[: width - 3]}..."


def text_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: names, then rows; texts are aligned left, numbers right."""
    columns = []
    for column in zip(names, *rows, strict=True):
        width = max(map(len, column))
        is_of_figures = all(cell[:1] in FIGURE for cell in column[1:])
        columns.append([c.rjust(width) if is_of_figures else c.ljust(width) for c in column])
    return [f"  {'  '.join(cells)}".rstrip() for cells in zip(*columns, strict=True)]


def first_names(names: Sequence[str], count: int = 3) -> str:
    """Return the first few of `names` on one line."""
    shown = ", ".join(cut(name, len(name)) for name in names[:count])
    return shown if len(names) <= count else f"{shown} and {len(names) - count:,} more"
