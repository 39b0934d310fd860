"""What a key has emitted, for people to read, and whether the table has each row just so."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa

from include.fold.arrow_values import plain_values
from include.fold.bucket import outputs_table
from include.fold.definition import EMITTED_AT, EMITTED_AT_US, REMOVED, Key, KeyedFold
from include.fold.emitted import Emitted
from include.fold.instants import instant_of
from include.fold.records import Column
from include.lake.columns import INSTANT
from include.lake.paths import Lake
from include.page.key_replay import Step
from include.page.key_rows import table_rows
from include.text_table import value_text


@dataclass(frozen=True)
class ShownOutput:
    """A row that was emitted. `in_table`: whether the table has it, or has none of a key that is gone;
    None: there is nothing to compare it with."""

    emitted_at: datetime
    text: str
    is_removal: bool
    in_table: bool | None


def compared_outputs(
    lake: Lake, fold: KeyedFold, key: Key, steps: Sequence[Step], from_us: int
) -> tuple[list[list[ShownOutput]], list[ShownOutput]]:
    """The outputs of each step, marked by whether the table has them; and its other rows.

    An update table has none but the last.
    """
    is_append, outputs = fold.output_mode == "append", _outputs(fold, steps)
    rows = table_rows(lake, fold, key, from_us if is_append else None)
    if rows is None:
        return outputs, []
    there = Counter(_emitted(fold, rows))
    last = max((n for n, of in enumerate(outputs) if of), default=-1)
    for n, of in enumerate(outputs):
        if is_append or n == last:
            of[:] = [_marked(each, there) for each in of]
    left = sorted(there.elements()) if is_append or last >= 0 else []
    return outputs, [ShownOutput(at, text, False, True) for at, text in left]


def _marked(output: ShownOutput, there: Counter[tuple[datetime, str]]) -> ShownOutput:
    if output.is_removal:  # of an update table, which has at most one row of a key
        return replace(output, in_table=not there.total())
    named = (output.emitted_at, output.text)
    is_there = there[named] > 0
    if is_there:
        there[named] -= 1
    return replace(output, in_table=is_there)


def _outputs(fold: KeyedFold, steps: Sequence[Step]) -> list[list[ShownOutput]]:
    """What each step has emitted."""
    each = [step.emitted for step in steps]
    together = Emitted(
        list(chain.from_iterable(e.rows for e in each)),
        list(chain.from_iterable(e.emitted_at_us for e in each)),
        list(chain.from_iterable(e.removed for e in each)),
    )
    table = outputs_table(fold, together)
    found = iter([] if table is None else _shown_outputs(fold, table))
    return [[next(found) for _ in e.rows] for e in each]


def _shown_outputs(fold: KeyedFold, table: pa.Table) -> list[ShownOutput]:
    instants = table[EMITTED_AT_US].to_pylist()
    gone = table[REMOVED].to_pylist() if REMOVED in table.column_names else [False] * len(instants)
    texts = _row_texts(table, fold.output_columns)
    rows = zip(map(instant_of, instants), texts, gone, strict=True)
    return [ShownOutput(*row, None) for row in rows]


def _emitted(fold: KeyedFold, rows: pa.Table) -> list[tuple[datetime, str]]:
    """When each of the table's rows was emitted, and its text."""
    instants = rows[EMITTED_AT].cast(INSTANT).cast(pa.int64()).to_pylist()
    return list(zip(map(instant_of, instants), _row_texts(rows, fold.output_columns), strict=True))


def _row_texts(rows: pa.Table, columns: Sequence[Column]) -> list[str]:
    return [value_text(row) for row in plain_rows(rows.select([c.name for c in columns]))]


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    columns = zip(*(plain_values(column.combine_chunks()) for column in rows.columns), strict=True)
    return [dict(zip(rows.column_names, values, strict=True)) for values in columns]
