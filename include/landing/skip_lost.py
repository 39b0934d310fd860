"""Ways out where a source's origin has lost what was not taken, or a landed file ends each run.

A batch of no rows says where to go on. One that was begun and cannot be read any more is closed with
what the tables have of it, in the same commit. Where bronze has its events and quarantine not yet
what was refused, that is taken first, as far as it is still there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import pyarrow.compute as pc

from include.fold.admission import micros_of
from include.lake.commits import rows_committed
from include.lake.delta_log import dataset_of, table_to_write
from include.lake.findings import Finding, record_findings
from include.lake.paths import Lake, LakeError
from include.landing.arrivals import GoesOn, OriginError
from include.landing.batch import GIVEN_UP, KEPT, Batch, Position
from include.landing.delta_parts import COMMIT, GONE, VersionPart, part_named
from include.landing.delta_versions import TableArrivals
from include.landing.ingest import refuse_other_entry
from include.landing.ingest_position import (
    app_id,
    commit_next,
    is_batch_in,
    plan_rows,
    read_position,
    write_taken,
)
from include.landing.ingest_seal import refuse_changed_tables, seal_tables
from include.landing.kafka_offsets import (
    count_gone,
    events_in_bronze,
    goes_on,
    is_readable,
    readable,
)
from include.landing.landed_values import shown
from include.landing.origin import arrivals_of, place_of
from include.landing.parsed_batch import Once, parsed_here
from include.origins import DeltaTable, KafkaTopic
from include.settings import Source
from include.text_table import counted

SENT_AGAIN = "do not have these rows sent again: bronze has their events"
Closed = tuple[Batch, int, int]  # with its rows in bronze and in quarantine


@dataclass(frozen=True)
class SkipPlan:
    """What is given up, and the batches that say so."""

    what: str
    count: int
    planned: tuple[Batch, ...]
    done: tuple[Closed, ...]
    rest: Batch | None = None  # what is left of the one that was begun, to be quarantined first
    action: str = "if the producers have these rows still, let them send them again"

    def text(self) -> str:
        """For people."""
        names = (name.partition(COMMIT)[0] for name in self.planned[-1].files)
        return f"{self.what}. It would go on behind {', '.join(names)}"


def plan_skip(lake: Lake, source: Source, now: datetime) -> SkipPlan | None:
    """What would be given up; None when nothing is lost. OriginError where that cannot be."""
    if source.origin is None:
        raise OriginError(
            f"{place_of(source)} loses nothing by itself: put a file that is gone back, under its "
            "name, or give it up",
            code="wrong_argument",
            subject=source.name,
            command=f"./stateful skip-file {source.name} FILE",
        )
    refuse_changed_tables(lake, source)
    position = read_position(lake, source.name)
    if position is None:
        return None
    begun = _rows_of_begun(lake, source, position)
    if isinstance(source.origin, DeltaTable):
        return _of_table(source.origin, position, begun, now)
    return _of_topic(lake, source, position, begun, now)


def _of_topic(
    lake: Lake, source: Source, position: Position, begun: tuple[int, int], now: datetime
) -> SkipPlan | None:
    from include.landing import kafka_client  # the command line starts without that package

    assert isinstance(source.origin, KafkaTopic)
    state, batch = kafka_client.open_topic(source.origin).state(), position.open
    if batch is not None and is_readable(state, batch):
        return None
    found = goes_on(source.origin, state, position, is_taken=any(begun))
    plan = found and _skip(found, position, begun, now)
    bronze, quarantined = begun
    if plan is None or batch is None or quarantined or not bronze:
        return plan  # quarantine has what was refused of it, or no table has anything
    left = tuple(readable(state, batch))
    gone = count_gone(batch, left, events_in_bronze(lake, source, batch))
    what = f"{plan.what}. Of the batch {counted(gone, 'offset')} without a row in bronze are gone"
    rest = replace(batch, files=tuple(part.name for part in left)) if left else None
    return replace(plan, what=what, count=plan.count + gone, rest=rest)


def _skip(found: GoesOn, position: Position, begun: tuple[int, int], now: datetime) -> SkipPlan:
    """A batch of no rows, and the end of the one that was begun."""
    at_us = micros_of(now) // 1000 * 1000
    skip = Batch(position.id, position.newest + 1, found.names, at_us, found.origin_id)
    done: list[Closed] = [(skip, 0, 0)]
    if position.open is not None:
        done.insert(0, (position.open, *begun))
    return SkipPlan(_words(found, position, begun), found.lost, (skip,), tuple(done))


def _of_table(
    origin: DeltaTable, position: Position, begun: tuple[int, int], now: datetime
) -> SkipPlan | None:
    """Of a batch that was begun and is not written, its files that are gone are read as empty."""
    arrived = TableArrivals(origin)
    batch = position.open
    if batch is None:
        found = arrived.goes_on(position)
        return found and _skip(found, position, begun, now)
    gone = arrived.gone(batch)
    if not gone:
        return None
    what = f"{origin.uri} has lost {counted(len(gone), 'file')} ({', '.join(gone)})"
    if any(begun):
        return _written_but_for_its_end(batch, begun, gone, what)
    names = tuple(
        VersionPart(part.version, f"{GONE}{part.path}").name for part in map(part_named, gone)
    )
    return SkipPlan(what, len(gone), (replace(batch, files=names),), ())


def _written_but_for_its_end(
    batch: Batch, begun: tuple[int, int], gone: Sequence[str], what: str
) -> SkipPlan:
    """Closed: its events are in bronze, those of the files that are gone, too."""
    _, quarantined = begun
    done = ((batch, *begun),)
    if quarantined:
        words = f"batch {batch.number} is written but for its end; {what}"
        return SkipPlan(words, len(gone), (batch,), done, action=SENT_AGAIN)
    words = f"bronze has the events of batch {batch.number}, and quarantine nothing yet; {what}"
    left = tuple(name for name in batch.files if name not in gone)
    rest = replace(batch, files=left) if left else None
    action = f"{SENT_AGAIN}. What was refused in these files is in no table"
    return SkipPlan(words, len(gone), (batch,), done=done, rest=rest, action=action)


def _rows_of_begun(lake: Lake, source: Source, position: Position) -> tuple[int, int]:
    """What the tables have of the batch that was begun and is not done."""
    if position.open is None:
        return 0, 0
    name, number = source.name, position.open.number
    tables = (("bronze", lake.bronze(name)), ("quarantine", lake.quarantine(name)))
    rows = [rows_committed(lake, p, app_id(name, t, position.id), number) for t, p in tables]
    bronze, quarantined = (_known(source, number, count) for count in rows)
    return bronze, quarantined


def _known(source: Source, number: int, count: int | None) -> int:
    if count is None:
        raise OriginError(
            f"how many rows batch {number} of {source.name} has is not known any more, as its commit "
            "was cleaned up: compare bronze with the origin by hand",
            subject=source.name,
        )
    return count


def _words(found: GoesOn, position: Position, begun: tuple[int, int]) -> str:
    if position.open is None:
        return found.what
    bronze, quarantined = begun
    return (
        f"batch {position.open.number} was begun and cannot be read any more: bronze has {bronze} "
        f"rows of it, and quarantine {quarantined}. {found.what}"
    )


def apply_skip(lake: Lake, source: Source, plan: SkipPlan) -> None:
    """Go on behind what is lost; the finding `rows_skipped` keeps what that was."""
    found = Finding(
        finding="rows_skipped",
        severity="warning",
        count=plan.count,
        detail=f"{plan.what}. `./stateful skip-lost {source.name}` has gone on behind them",
        action=plan.action,
    )
    # First: once it is written, nothing is lost any more.
    record_findings(lake, None, source.name, [found])
    done = plan.done
    if plan.rest is not None:
        (begun, bronze, _), *others = done
        done = ((begun, bronze, _quarantined(lake, source, plan.rest)), *others)
    write_taken(lake, source.name, plan.planned, done)
    seal_tables(lake, source.name)


def _quarantined(lake: Lake, source: Source, rest: Batch) -> int:
    """The rows of it that are refused, in quarantine now: bronze has the others.

    As the commit of the batch itself: a skip that dies behind it finds it there.
    """
    refuse_other_entry(lake, source, rest)
    sizes = arrivals_of(lake, source).sizes(rest.files)
    with parsed_here(lake, source, rest, sizes) as parsed:
        if refused := parsed.summary().refused:
            name = app_id(source.name, "quarantine", rest.position_id)
            parsed.append_refused(Once(name, rest.number), rest.ingested_at_us)
        return refused


class FilePlan(NamedTuple):
    """A file of the batch that was begun, and the mark with which it is given up."""

    batch: Batch
    name: str
    mark: str

    def text(self) -> str:
        """For people."""
        told = f"{shown(self.name)} of batch {self.batch.number} is given up: it is not read any more. "
        if self.mark == GIVEN_UP:
            return f"{told}Quarantine will have it as a whole"
        return (
            f"{told}The tables keep what a run has written of it; its refused rows may be missing in "
            "quarantine"
        )

    def action(self) -> str:
        """What is to be done when it is given up."""
        if self.mark == GIVEN_UP:
            return (
                "if the producer has it still, let it land under another name; or put it back, and "
                "`./stateful reingest` takes it in. Not both: each row would be there twice"
            )
        return (
            "do not let it land under another name: what bronze has of it would be there twice. If "
            "refused rows of it are missing, let the producer send these alone"
        )


def plan_skip_file(lake: Lake, source: Source, name: str) -> FilePlan | None:
    """How it would be given up; None when it is already.

    LakeError for a file that no batch has begun with: such a one stops nothing.
    """
    if source.origin is not None:
        raise LakeError(
            f"{place_of(source)} has no landed files. To go on behind what is lost there",
            code="wrong_argument",
            subject=source.name,
            command=f"./stateful skip-lost {source.name}",
        )
    refuse_changed_tables(lake, source)
    position = read_position(lake, source.name)
    batch = position and position.open
    if not batch or name not in batch.files:
        has = f"has {len(batch.files)} files, not this one" if batch else "is none"
        raise LakeError(
            f"{shown(name)} stops nothing: of {source.name} the batch that was begun and is not done "
            f"{has}. Give its name below {place_of(source)}, as the error of the run has it",
            code="wrong_argument",
            subject=name,
        )
    return (
        None if name in batch.given_up else FilePlan(batch, name, _mark(lake, source, batch, name))
    )


def _mark(lake: Lake, source: Source, batch: Batch, name: str) -> str:
    """KEPT when the tables have all of it, or bronze its events."""
    if is_batch_in(lake, source.name, "quarantine", batch):
        return KEPT
    bronze = dataset_of(lake.bronze(source.name))
    return KEPT if bronze.count_rows(filter=pc.field("source_file") == name) else GIVEN_UP


def apply_skip_file(lake: Lake, source: Source, plan: FilePlan) -> None:
    """Mark it in the position; the finding `file_given_up` keeps that it was."""
    found = Finding(
        finding="file_given_up",
        severity="warning",
        count=1,
        detail=plan.text(),
        action=plan.action(),
    )
    # First: once it is marked, nobody would come to say so.
    record_findings(lake, None, source.name, [found])
    batch = plan.batch
    mark = Batch(
        batch.position_id, batch.number, (f"{plan.mark}{plan.name}",), batch.ingested_at_us
    )
    table = table_to_write(lake.ingested_files(source.name))
    commit_next(table, source.name, mark, plan_rows(mark), ("given up",))
    seal_tables(lake, source.name)
