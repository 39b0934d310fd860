"""What `ops` quotes of a key, in errors and findings.

A cell that quotes any text of the key's rows is replaced as a whole: what stands beside it may be
of them, too, and messages cut values off. Only in columns that people read: a row may have any text, and one of our words (`scheduled`, a stream's name) is not to go from
where programs read it.
"""

import re
from collections.abc import Collection
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from include.erase.erase_rows import LEAST_TEXT, mentions, spellings
from include.erase.erased_key import ErasedKey
from include.lake.delta_log import delta_table
from include.lake.ops import despite_others
from include.lake.ops_schemas import SCHEMAS
from include.lake.paths import Lake, files_of

ERASED = "[erased]"
# Messages cut values to 80 characters, and quote them.
BEGINNING = 60
NEVER = r"(?!)"
# Of more, all that people read of the source and its streams goes: to look for each takes too long.
MOST_TEXTS = 1_000
FOR_PEOPLE = ("detail", "action", "error", "reason", "group", "examples")
SUBJECTS = ("subject", "source", "stream")


class Traces:
    """What is looked for: texts anywhere, and short ones as words where the key's source is spoken of."""

    def __init__(self, key: ErasedKey, subjects: Collection[str], texts: Collection[str]) -> None:
        named = {text for text in key.texts.values() if text}
        long = {text for text in texts if len(text) >= LEAST_TEXT}
        self.words = named - long
        self.subjects = set(subjects)
        self.has_too_many = len(long) > MOST_TEXTS
        spelt = {
            one for text in (long & named if self.has_too_many else long) for one in spellings(text)
        }
        # The longest first: of a text that is quoted as a whole nothing is to stay behind.
        parts = sorted(spelt | {one[:BEGINNING] for one in spelt}, key=len, reverse=True)
        self._parts = re.compile("|".join(map(re.escape, parts)) or NEVER)

    def in_text(self, told: str) -> bool:
        """Whether a text that may be about anything has one of them."""
        return self._parts.search(told) is not None

    def in_words(self, told: str) -> bool:
        """Whether one that is about the source, or a stream of it, has."""
        return self.has_too_many or any(mentions(told, word) for word in self.words)


def erase_in_ops(lake: Lake, traces: Traces) -> int:
    """How many cells of the `ops` tables were replaced."""
    tables = [lake.ops(name) for name in SCHEMAS if lake.is_delta_table(lake.ops(name))]
    return sum(despite_others(partial(_erase_in, path, traces)) for path in tables)


def _erase_in(path: str, traces: Traces) -> int:
    table = delta_table(path)
    rows = table.to_pyarrow_dataset(filesystem=files_of(path)).to_table()
    cells = 0
    for index, name in enumerate(rows.column_names):
        if name not in FOR_PEOPLE:
            continue
        marked = _marked(rows, name, traces)
        if count := sum(marked):
            cells += count
            new = pc.if_else(pa.array(marked), ERASED, rows[name]).cast(pa.string())
            rows = rows.set_column(index, name, new)
    if cells:
        plain = pa.schema([field.remove_metadata() for field in rows.schema])
        write_deltalake(table, rows.cast(plain), mode="overwrite")
    return cells


def _marked(rows: pa.Table, name: str, traces: Traces) -> list[bool]:
    told = rows[name].to_pylist()
    about = [column for column in SUBJECTS if column in rows.column_names]
    subjects = rows[about[0]].to_pylist() if about else [None] * len(told)
    return [
        text is not None
        and (traces.in_text(text) or (of in traces.subjects and traces.in_words(text)))
        for text, of in zip(told, subjects, strict=True)
    ]
