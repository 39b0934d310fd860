"""Whether a stream's table, its rejected rows and the records of both are of one time.

Somebody may put back any part of a lake: none must be an older copy. What moves on in a fixed
order is compared: the table's seal, its log, the ledger, `rejected/<stream>`, `ops/generations`,
`ops/batches`, and the checkpoint.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.checkpoint.checkpoint_files import newest_committed, newest_planned
from include.coverage.entries import Entry
from include.coverage.judge import newest_own
from include.coverage.marks import is_marked
from include.lake.delta_log import (
    commit_hash,
    first_line,
    is_of_machine,
    lacks_newest,
    table_to_read,
    unreadable_log,
)
from include.lake.generations import GenerationRow, Generations, exactly_once_tables, written_batch
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.lake.stream_result import ours
from include.lake.table_seal import changed_since, read_seals


class _Batches(NamedTuple):
    """How far a generation's batches have come, each time the newest one."""

    generation: int
    committed: int  # by the checkpoint
    recorded: int | None  # in `ops/batches`
    wrote: int | None  # ... and committed, with rows for the table
    rejected: int | None  # ... with failed calls


def why_not_trusted(lake: Lake, generations: Generations, entries: Sequence[Entry]) -> str | None:
    """Why a stream's table is not what its ledger says; None when it is."""
    stream, own = generations.stream, newest_own(entries)
    table, rejected = f"tables/{stream}", f"rejected/{stream}"
    seals = read_seals(lake, [table, rejected])
    sealed = seals.get(table)
    batches = _batches(lake, generations)
    # Nothing was in it yet, or nobody had looked.
    is_new = sealed is None and (own is None or (own.kind != "void" and own.until_us is None))
    if not lake.is_delta_table(lake.table(stream)):
        is_void = own is not None and own.kind == "void"
        return "it is missing" if batches or not (is_new or is_void) else None
    if is_new:
        return _lacks_batches(lake, stream, batches) if batches else None
    if sealed is None:
        return f"nothing says any more what it was: {lake.ops('tables')} was lost"
    return (
        changed_since(lake, sealed, is_marked)
        or _read_other_bronze(lake, generations, own)
        or _older_than_ledger(lake, stream, entries)
        or (batches and (_older_batches(lake, batches) or _lacks_batches(lake, stream, batches)))
        or (rejected in seals and changed_since(lake, seals[rejected], ours(stream)))
        or None
    )


def _read_other_bronze(lake: Lake, generations: Generations, own: Entry | None) -> str | None:
    """Whether live has read what is no more in bronze: that is shorter, or in its place there is
    another commit."""
    row = generations.current
    if row is None or own is None or own.read_version is None or own.read_commit is None:
        return None
    bronze = lake.bronze(row["source"])
    found = commit_hash(lake, bronze, own.read_version)
    if f"{own.read_version}:{found}" == own.read_commit:
        return None
    newest = _newest_version(lake, bronze, own.bronze_id)
    if newest is None:
        return None  # another table has not been read at all, as the next run says
    if newest < own.read_version:
        return (
            f"{bronze} is at version {newest}, and version {own.read_version} of it was read: it is an "
            "older copy. The one that has that version mends it; else the reseed alone does"
        )
    if found is None:
        return None  # the clean-up of its log has taken it
    return (
        f"version {own.read_version} of {bronze} is another commit than the one that was read: rows "
        "that are in the state never landed, or some that landed are not in it. Where that commit was "
        "ours, a copy of bronze that has it mends it; else the reseed alone does"
    )


def bronze_commit(
    lake: Lake, row: GenerationRow, bronze_id: str | None, version: int
) -> str | None:
    """Which commit a version of bronze is, with that version; None where it is not the table of this
    id, or cannot be read."""
    path = lake.bronze(row["source"])
    is_same = _newest_version(lake, path, bronze_id) is not None
    found = commit_hash(lake, path, version) if is_same else None
    return None if found is None else f"{version}:{found}"


def _newest_version(lake: Lake, path: str, table_id: str | None) -> int | None:
    """Of a table, where it is the one of this id and can be read."""
    table = _readable(lake, path)
    return None if table is None or str(table.metadata().id) != table_id else int(table.version())


def _readable(lake: Lake, path: str) -> DeltaTable | None:
    """The table; None where there is none, or its log is no log, as `changed_since` says."""
    try:
        return table_to_read(path) if lake.is_delta_table(path) else None
    except DeltaError as error:
        if is_of_machine(error):
            raise
        return None


def _older_than_ledger(lake: Lake, stream: str, entries: Sequence[Entry]) -> str | None:
    version, entered = table_version(lake, stream), newest_entered(entries)
    if version is None or entered is None or entered.table_version is None:
        return None
    if version < entered.table_version:
        return f"it is at version {version}, and the ledger has entered {entered.table_version}"
    found = commit_hash(lake, lake.table(stream), entered.table_version)
    if found is None and version == entered.table_version:
        return f"its log {lacks_newest(version)}"
    # A void counts on nothing in the table: it may be made anew.
    is_known = entered.kind != "void" and None not in (found, entered.table_commit)
    if not is_known or found == entered.table_commit:
        return None
    return (
        f"its version {entered.table_version} is another commit than the one that the ledger has "
        "entered: table and ledger are of different times"
    )


def other_generation(lake: Lake, generations: Generations, entries: Sequence[Entry]) -> str | None:
    """Why `ops/generations` is older than table and ledger; None when it is not.

    `entries` with what the table's own log says. A reseed has its row before it writes.
    """
    known = max((row["generation"] for row in generations.rows), default=0)
    newest = max((entry.generation for entry in entries), default=0)
    begun = generations.intent
    has_run = begun is not None and has_begun(
        lake, generations.stream, entries, generation=begun["generation"]
    )
    if newest <= known and not has_run:
        return None
    generation = newest if begun is None or newest > known else begun["generation"]
    return (
        f"it has rows of generation {generation}, which {lake.ops('generations')} "
        f"{'does not know' if newest > known else 'takes for one that has not begun'}: that one is "
        "an older copy, or was lost"
    )


def has_begun(lake: Lake, stream: str, entries: Sequence[Entry], generation: int) -> bool:
    """Whether live has run on a generation, whatever its row says."""
    if any(one.kind == "live" and one.generation == generation for one in entries):
        return True
    return newest_planned(lake, lake.checkpoint(stream, generation)) is not None


def _batches(lake: Lake, generations: Generations) -> _Batches | None:
    """Those of the current generation; None before its checkpoint commits the first."""
    stream, generation = generations.stream, generations.number
    committed = newest_committed(lake, lake.checkpoint(stream, generation))
    if committed is None:
        return None
    columns = ("batch_id", "rows_out", "rows_rejected", "timeouts_rejected")
    where = {"stream": stream, "generation": generation}
    known = read_ops(lake, "batches", where, columns).to_pylist()
    recorded = max((row["batch_id"] for row in known), default=None)
    done = [row for row in known if row["batch_id"] <= committed]
    wrote = [row["batch_id"] for row in done if row["rows_out"]]
    rejected = [row["batch_id"] for row in done if row["rows_rejected"] or row["timeouts_rejected"]]
    newest_of = (max(batches, default=None) for batches in (wrote, rejected))
    return _Batches(generation, committed, recorded, *newest_of)


def _older_batches(lake: Lake, batches: _Batches) -> str | None:
    """Each batch is in `ops/batches` before its checkpoint commits it."""
    if batches.recorded is not None and batches.recorded >= batches.committed:
        return None
    return (
        f"its checkpoint has committed batch {batches.committed}, and {lake.ops('batches')} "
        f"{_ends(batches.recorded)}: what was put back is older than the checkpoint"
    )


def _lacks_batches(lake: Lake, stream: str, batches: _Batches) -> str | None:
    """And its rows are in the table before that, and its failed calls beside it."""
    for name, wrote in (("table", batches.wrote), ("rejected", batches.rejected)):
        path = exactly_once_tables(lake, stream)[name]
        try:
            has = written_batch(lake, path, stream, generation=batches.generation, table=name)
        except DeltaError as error:
            if is_of_machine(error):
                raise
            return unreadable_log(path, first_line(error))
        if wrote is not None and (has is None or has < wrote):
            it = "it" if name == "table" else path
            return (
                f"its checkpoint has written batch {wrote} to {it}, and {it} {_ends(has)}: it is "
                "an older copy, or lost its newest commit"
            )
    return None


def _ends(batch: int | None) -> str:
    return "has none of them" if batch is None else f"ends at batch {batch}"


def newest_entered(entries: Sequence[Entry]) -> Entry | None:
    """The entry with the table's version up to which its commits are entered, since it last
    became another table; None: none is."""
    newest: Entry | None = None
    for entry in entries:
        newest = None if entry.kind == "void" else newest
        if entry.table_version is not None and (
            newest is None or entry.table_version >= (newest.table_version or 0)
        ):
            newest = entry
    return newest


def entered_version(entries: Sequence[Entry]) -> int:
    """That version; -1 for none."""
    newest = newest_entered(entries)
    return -1 if newest is None or newest.table_version is None else newest.table_version


def as_of_now(lake: Lake, entry: Entry) -> Entry:
    """The entry, with the table's newest commit as the one up to which it knows the table."""
    version = table_version(lake, entry.stream)
    path = lake.table(entry.stream)
    commit = None if version is None else commit_hash(lake, path, version)
    return replace(entry, table_version=version, table_commit=commit)


def table_version(lake: Lake, stream: str) -> int | None:
    """The version of a stream's table; None where there is none that can be read."""
    table = _readable(lake, lake.table(stream))
    return None if table is None else int(table.version())
