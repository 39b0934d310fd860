"""How the demo's parts look: headings, tables, and plans and times that people can read."""

import re
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

WIDTH = 110
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS, MILLIS = re.compile(r"\b[12]\d{15}\b"), re.compile(r"\b[12]\d{12}\b")
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# What differs from run to run, or repeats what the line has said.
PLAN_NOISE = (
    (r"#\d+L?", ""),
    (rf"runId = {UUID}", "runId = <run>"),
    (rf"{UUID}, ", ""),
    (r", \[plan_id=\d+\]", ""),
    (r"(FileScan \w+ \[).*", r"\1...]"),
)


def heading(title: str, explanation: str) -> str:
    """A part's title, and below it what one sees there."""
    return f"\n== {title}\n{textwrap.fill(explanation, WIDTH)}\n"


def with_instants(text: str) -> str:
    """`text` with its milliseconds and microseconds since 1970 as instants."""
    text = MICROS.sub(lambda found: _instant(int(found[0])), text)
    return MILLIS.sub(lambda found: _instant(int(found[0]) * 1000), text)


def _instant(micros: int) -> str:
    at = (EPOCH + timedelta(microseconds=micros)).isoformat()
    return at.replace("+00:00", "Z")


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows below their names, in columns."""
    lines = [[str(name) for name in names]]
    lines += [["" if value is None else with_instants(str(value)) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "".join(f"  {line}\n" for line in padded)


def frame_table(frame: DataFrame) -> str:
    """All rows of a small frame, in order; what is nested is shown as JSON."""
    shown = [
        F.to_json(field.name).alias(field.name)
        if isinstance(field.dataType, StructType | ArrayType)
        else F.col(field.name)
        for field in frame.schema.fields
    ]
    # Ordered here: Spark would run two jobs more for three rows.
    return table(frame.columns, sorted(map(tuple, frame.select(*shown).collect()), key=str))


def readable_plan(plan: str, folder: str) -> str:
    """A physical plan without the ids of its run, in lines that fit a terminal."""
    plan = plan.replace("== Physical Plan ==", "").replace(f"file:{folder}", "<lake>")
    for pattern, shorter in PLAN_NOISE:
        plan = re.sub(pattern, shorter, plan)
    lines = [line for line in with_instants(plan).splitlines() if line.strip()]
    return "".join(f"{wrapped}\n" for line in lines for wrapped in _wrap(line))


def _wrap(line: str) -> list[str]:
    """A node's line in several, the tree's bars kept at their left."""
    tree = re.match(r"[ :]*(?:[:+]- )?", line)
    bars = re.sub(r"[+-]", " ", tree[0] if tree else "")
    return textwrap.wrap(
        line,
        WIDTH,
        subsequent_indent=f"{bars}      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
