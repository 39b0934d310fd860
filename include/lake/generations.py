"""The generation of its state that a stream runs on, and its table in brief.

A generation is a row in each record of the stream's table: the commit that replaces the table's rows is the
switch to the next one.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from include.fold.admission import instant_of
from include.fold.arrow_values import plain_rows
from include.lake.delta_log import dataset_of, open_table, unbroken
from include.lake.errors import LakeError
from include.lake.ops import last_run
from include.lake.paths import Lake
from include.lake.table import Record, Table
from include.text_table import counted, cut, text_table, value_text

FIRST = 1
ROW = "row"  # in the record of a stream's table


class GenerationRow(dict[str, Any]):
    """The settings that a generation is bound to, its code, and the savepoint a rebuilt one began with; a missing
    name is None."""

    def __missing__(self, name: str) -> None:
        return None


def app_id(stream: str, generation: int) -> str:
    """Return the name of a generation's batches in the transactions of its table."""
    return f"{stream}/{generation}"


def has_written(lake: Lake, stream: str, generation: int) -> bool:
    """True if the stream's table has a batch of a generation, by its transactions."""
    path, writer = lake.table(stream), app_id(stream, generation)
    return lake.is_delta_table(path) and open_table(path).transaction_version(writer) is not None


@dataclass(frozen=True)
class Generations:
    """The generation that a stream runs on, by one reading of the newest record in its table's log."""

    stream: str
    newest_folder: int | None = None  # among its checkpoints
    record: Record | None = None  # None before the stream's first batch or rebuild
    mismatch: str | None = None  # why it does not hold, by the table alone

    @cached_property
    def current(self) -> GenerationRow | None:
        """The row of the generation, also of a record that does not hold."""
        row = None if self.record is None else self.record.get(ROW)
        return None if row is None else GenerationRow(row)

    @property
    def number(self) -> int:
        """The number of the checkpoint that the stream runs on, or will."""
        if self.current is not None:
            return int(self.current["generation"])
        return self.newest_folder or FIRST

    def pinned(self) -> GenerationRow:
        """Return the row of the generation; LakeError before the stream's first batch."""
        if self.current is None:
            raise self.without_state()
        return self.current

    def without_state(self) -> LakeError:
        """Return the error of a stream before its first batch."""
        command = f"./stateful stream {self.stream}"
        said = f"{self.stream} has no state yet: run the stream"
        return LakeError(said, code="nothing_there", subject=self.stream, command=command)


def read_generations(lake: Lake, stream: str) -> Generations:
    """Read the generation of a stream, and `mismatch` if others have changed its table since the newest record."""
    folders = lake.folders(f"{lake.root}/checkpoints/{stream}")
    newest = max((int(name) for name in folders if name.isdecimal()), default=None)
    path = lake.table(stream)
    if not lake.is_delta_table(path):
        return Generations(stream, newest)
    try:
        with unbroken(path):
            return Generations(stream, newest, Table.read(lake, path).record())
    except LakeError as error:
        record = None
        with suppress(LakeError):  # of a log that cannot be read nothing is known
            record = Table.read(lake, path).newest_record()
        return Generations(stream, newest, record, mismatch=error.message)


def is_rebuilt(row: GenerationRow | None) -> bool:
    """True if the generation began with a savepoint, and not with a stream's first run."""
    return row is not None and row["seed_savepoint"] is not None


FIRST_ROWS = 5


@dataclass(frozen=True)
class StreamResult:
    """A stream's table in brief."""

    stream: str
    rows: int
    until: datetime | None
    columns: tuple[str, ...]
    first_rows: tuple[tuple[Any, ...], ...]
    duplicates: int = 0  # rows that its last run has not folded again


def read_result(lake: Lake, stream: str) -> StreamResult | None:
    """Read the table of `stream` in brief; None before its first run."""
    if not lake.is_delta_table(lake.table(stream)):
        return None
    with unbroken(lake.table(stream)):
        dataset = dataset_of(lake.table(stream))
        head, rows = dataset.head(FIRST_ROWS), dataset.count_rows()
    run = last_run(lake, stream)
    return StreamResult(
        stream=stream,
        rows=rows,
        until=complete_until(lake, stream),
        columns=tuple(head.column_names),
        first_rows=tuple(tuple(row.values()) for row in plain_rows(head)),
        duplicates=(run["rows_duplicate"] or 0) if run else 0,
    )


def complete_until(lake: Lake, stream: str) -> datetime | None:
    """Return the instant before which the table of `stream` is complete, by its newest record; None: none."""
    path = lake.table(stream)
    record = Table.read(lake, path).newest_record() if lake.is_delta_table(path) else None
    until_us = (record or {}).get("complete_until_us")
    return None if until_us is None else instant_of(until_us)


def format_result(result: StreamResult, most: int | None = None) -> str:
    """Return `result` as a short table of text; its values are cut to `most` characters."""
    until = f"{result.until:%Y-%m-%d %H:%M:%S} UTC" if result.until else "nothing yet"
    heading = f"{result.stream}: {counted(result.rows, 'row')}, complete until {until}"
    if result.duplicates:
        heading += f"; {counted(result.duplicates, 'duplicate')} in the last run"
    if not result.first_rows:
        return heading
    texts = [tuple(map(value_text, row)) for row in result.first_rows]
    cells = [tuple(cut(text, most) if most else text for text in row) for row in texts]
    lines = text_table(result.columns, cells)
    if result.rows > len(cells):
        lines.append("  ...")
    return "\n".join([heading, *lines])
