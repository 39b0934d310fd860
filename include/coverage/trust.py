"""Whether a stream's table and the records of it are of one time: none is an older copy.

Somebody may put back any part of a lake. What moves on in a fixed order is compared: the table's
seal, its log, the ledger, `ops/generations`, `ops/batches`, and the checkpoint.
"""

from collections.abc import Sequence
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.checkpoint import newest_committed, newest_planned
from include.coverage.entries import Entry
from include.coverage.judge import newest_own
from include.coverage.marks import is_marked
from include.generations import (
    app_id,
    current_generation,
    generation_rows,
    open_intent,
)
from include.lake import Lake
from include.ops import read_ops
from include.table_seal import read_seal, what_changed


def why_not_trusted(lake: Lake, stream: str, entries: Sequence[Entry]) -> str | None:
    """Why a stream's table is not what its ledger says; None when it is."""
    own = newest_own(entries)
    sealed = read_seal(lake, f"tables/{stream}")
    # Nothing was in it yet, or nobody had looked.
    is_new = sealed is None and (own is None or (own.kind != "void" and own.until_us is None))
    if not lake.is_delta_table(lake.table(stream)):
        is_void = own is not None and own.kind == "void"
        has_run = _committed(lake, stream) is not None
        return "it is missing" if has_run or not (is_new or is_void) else None
    if is_new:
        return _lacks_batches(lake, stream)
    if sealed is None:
        return f"nothing says any more what it was: {lake.ops('tables')} was lost"
    return (
        what_changed(lake, f"tables/{stream}", is_marked)
        or _older_than_ledger(lake, stream, entries)
        or _older_batches(lake, stream)
        or _lacks_batches(lake, stream)
    )


def _older_than_ledger(lake: Lake, stream: str, entries: Sequence[Entry]) -> str | None:
    version, entered = table_version(lake, stream), entered_version(entries)
    if version is None or version >= entered:
        return None
    return f"it is at version {version}, and the ledger has entered version {entered}"


def other_generation(lake: Lake, stream: str, entries: Sequence[Entry]) -> str | None:
    """Why table and ledger, and `ops/generations`, are not of one time; None when they are.

    `entries` with what the table's own log says. A reseed has its row before it writes, and is
    entered, or marked in the table, before the stream is switched to it.
    """
    return _older_generations(lake, stream, entries) or _older_table(lake, stream, entries)


def _older_table(lake: Lake, stream: str, entries: Sequence[Entry]) -> str | None:
    own, generation = newest_own(entries), current_generation(lake, stream)
    if own is None or own.kind == "void" or own.generation >= generation:
        return None
    return (
        f"it has rows of generation {own.generation}, and the stream runs on generation "
        f"{generation}: it is an older copy"
    )


def _older_generations(lake: Lake, stream: str, entries: Sequence[Entry]) -> str | None:
    """Whether the ledger knows of generations what `ops/generations` does not."""
    known = max((row["generation"] for row in generation_rows(lake, stream)), default=0)
    newest = max((entry.generation for entry in entries), default=0)
    begun = open_intent(lake, stream)
    has_run = begun is not None and has_begun(lake, stream, entries, begun["generation"])
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


def _committed(lake: Lake, stream: str) -> int | None:
    return newest_committed(lake, lake.checkpoint(stream, current_generation(lake, stream)))


def _older_batches(lake: Lake, stream: str) -> str | None:
    """Each batch is in `ops/batches` before its checkpoint commits it."""
    committed = _committed(lake, stream)
    newest = max((row["batch_id"] for row in _batches(lake, stream)), default=None)
    if committed is None or (newest is not None and newest >= committed):
        return None
    return (
        f"its checkpoint has committed batch {committed}, and {lake.ops('batches')} "
        f"{_ends(newest)}: what was put back is older than the checkpoint"
    )


def _lacks_batches(lake: Lake, stream: str) -> str | None:
    """And its rows are in the table before that."""
    committed = _committed(lake, stream)
    wrote = [row["batch_id"] for row in _batches(lake, stream) if row["rows_out"]]
    newest = max((n for n in wrote if committed is not None and n <= committed), default=None)
    name = app_id(stream, current_generation(lake, stream), "table")
    has = None if newest is None else DeltaTable(lake.table(stream)).transaction_version(name)
    if newest is None or (has is not None and has >= newest):
        return None
    return (
        f"its checkpoint has written batch {newest} to it, and it {_ends(has)}: it is an older "
        "copy, or lost its newest commit"
    )


def _batches(lake: Lake, stream: str) -> list[dict[str, Any]]:
    of_now = {"stream": stream, "generation": current_generation(lake, stream)}
    rows: list[dict[str, Any]] = (
        read_ops(lake, "batches", of_now).select(["batch_id", "rows_out"]).to_pylist()
    )
    return rows


def _ends(batch: int | None) -> str:
    return "has none of them" if batch is None else f"ends at batch {batch}"


def entered_version(entries: Sequence[Entry]) -> int:
    """The table's version up to which its commits are entered, since it last became another."""
    versions = [-1]
    for entry in entries:
        versions = [-1] if entry.kind == "void" else versions
        versions.append(-1 if entry.table_version is None else entry.table_version)
    return max(versions)


def table_version(lake: Lake, stream: str) -> int | None:
    """The version of a stream's table; None where there is none that can be read."""
    path = lake.table(stream)
    try:
        return DeltaTable(path).version() if lake.is_delta_table(path) else None
    except DeltaError:
        return None  # its log is no log: `what_changed` says so
