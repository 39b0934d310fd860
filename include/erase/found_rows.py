"""The rows of a key in bronze and quarantine, and what of them other texts of the lake may quote."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.erase.erased_key import ErasedKey
from include.lake.paths import Lake, dataset_of, files_of
from include.landing.landed_file import row_of_raw
from include.landing.landed_row import value_at
from include.landing.late_fields import late_fields, with_late_fields
from include.landing.refusals import RefusedError
from include.settings import Source

# A shorter value of a row names nobody by itself, and stands in many texts.
LEAST_TEXT = 8
IN_QUARANTINE = ("raw", "correction", "reason")


class Found(NamedTuple):
    """What bronze and quarantine have of a key."""

    rows: int  # of bronze
    dates: tuple[str, ...]  # partitions of bronze with such rows
    refused: tuple[str, ...]  # quarantine_id of its rows
    files: tuple[str, ...]  # landed files that these and those came in


def find(lake: Lake, key: ErasedKey) -> Found:
    """Both, looked through."""
    source, counts, dates, files = key.source.name, 0, set(), set()
    for rows, mask in rows_and_mask(lake, key):
        found = rows.filter(mask)
        counts += found.num_rows
        dates |= {str(date) for date in found["event_date"].unique().to_pylist()}
        files |= {name.partition("#")[0] for name in found["source_file"].unique().to_pylist()}
    refused = {}
    if lake.is_delta_table(lake.quarantine(source)):
        refused = {row["quarantine_id"]: row["source_file"] for row in _refused(lake, key)}
    named = files | set(refused.values())
    return Found(counts, tuple(sorted(dates)), tuple(sorted(refused)), tuple(sorted(named)))


def rows_and_mask(
    lake: Lake, key: ErasedKey, date: str | None = None
) -> Iterator[tuple[pa.Table, Any]]:
    """Parts of bronze, as they are stored, and which of their rows are the key's.

    The table is opened here, and not when the first part is asked for: delta-rs opens none while
    it writes one.
    """
    path = lake.bronze(key.source.name)
    table = DeltaTable(path)
    late = late_fields(table, list(key.values))
    dataset = table.to_pyarrow_dataset(filesystem=files_of(path))
    wanted = None if date is None else pc.field("event_date") == pc.scalar(date).cast(pa.date32())
    parts = (pa.Table.from_batches([batch]) for batch in dataset.to_batches(filter=wanted))
    return ((rows, _mask(with_late_fields(rows, late), key)) for rows in parts)


def _mask(rows: pa.Table, key: ErasedKey) -> Any:
    is_event = pc.invert(rows["is_clock"])
    return reduce(pc.and_, (_is(rows[name], value) for name, value in key.values.items()), is_event)


def _is(column: Any, value: pa.Scalar) -> Any:
    if not value.is_valid:
        return pc.is_null(column)
    return pc.fill_null(pc.equal(column.cast(value.type), value), False)


# Quarantine


def _refused(lake: Lake, key: ErasedKey) -> Iterator[dict[str, Any]]:
    rows = dataset_of(lake.quarantine(key.source.name))
    for batch in rows.to_batches():
        yield from (row for row in batch.to_pylist() if _names(row, key))


def _names(row: Mapping[str, Any], key: ErasedKey) -> bool:
    """Whether a refused row is the key's, or cannot be read and has all of it as words."""
    texts = {name: text for name, text in key.texts.items() if text is not None}
    known = [_landed_values(row[part], row["source_file"], key.source) for part in ("raw", "correction")]
    if any(values is not None and _has(values, texts, key.source) for values in known):
        return True
    if known[0] is not None and all(_is_told(known[0], n, key.source) for n in texts):
        return False  # it says whose it is
    told = " ".join(str(row[part]) for part in IN_QUARANTINE if row[part] is not None)
    return all(mentions(told, text) for text in texts.values())


def _landed_values(raw: str | None, name: str, source: Source) -> Mapping[str, object] | None:
    try:
        return None if raw is None else row_of_raw(name, raw, source)
    except RefusedError:
        return None


def _has(values: Mapping[str, object], texts: Mapping[str, str], source: Source) -> bool:
    return all(str(_landed(values, name, source)) == text for name, text in texts.items())


def _is_told(values: Mapping[str, object], name: str, source: Source) -> bool:
    return _landed(values, name, source) is not None


def _landed(values: Mapping[str, object], name: str, source: Source) -> object:
    field = next(field for field in source.fields if field.name == name)
    return value_at(field.landed)(values)


def spellings(text: str) -> set[str]:
    """How a text may stand in another: as it is, in JSON, in Python."""
    escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    return {text, *escaped}


def mentions(told: str, text: str) -> bool:
    """Whether a text has another as a word of its own."""
    return any(
        re.search(rf"(?<!\w){re.escape(one)}(?!\w)", told) is not None for one in spellings(text)
    )


# What may be quoted


def quotable(lake: Lake, key: ErasedKey) -> set[str]:
    """Texts of the key's rows, the key's own too, that stand in no other row of bronze."""
    found: set[str] = set()
    for rows, mask in rows_and_mask(lake, key):
        found.update(*map(_texts, rows.filter(mask).drop_columns("source_file").to_pylist()))
    if lake.is_delta_table(lake.quarantine(key.source.name)):
        found.update(*(_texts({"raw": row["raw"], "c": row["correction"]}) for row in _refused(lake, key)))
    for rows, mask in rows_and_mask(lake, key):
        others = rows.filter(pc.invert(mask))
        for column in others.columns:
            if found and pa.types.is_string(column.type):
                known = pa.array(sorted(found), pa.string())
                found.difference_update(column.filter(pc.is_in(column, known)).unique().to_pylist())
    return found | {text for text in key.texts.values() if text is not None}


def _texts(value: Any) -> set[str]:
    """All texts within a value, of a certain length; of JSON those within it, too."""
    if isinstance(value, str):
        found = {value} if len(value) >= LEAST_TEXT else set()
        return found | (_texts(_as_json(value)) if value[:1] in "{[" else set())
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        return set(chain.from_iterable(map(_texts, value)))
    return set()


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
