"""An erasure's plan: the key as somebody wrote it, what would be done, and what stands in its way."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from include.amend.erase_rows import Found, files_in_landing, find, mentions
from include.amend.erased_key import ErasedKey, streams_by_key
from include.fold.admission import EPOCH
from include.ingest.amendments import Erasure, amendments_of
from include.ingest.ingest_log import Ingestion
from include.ingest.origin import place_of, waiting
from include.lake.aside import lying_aside
from include.lake.delta_log import dataset_of, delta_table, open_table
from include.lake.errors import LakeError, SettingsError, damaged
from include.lake.generations import Generations, read_generations
from include.lake.paths import Lake
from include.maintain.maintain import find_old_generations
from include.registry import all_sources, source_names, stream_names, streams_of
from include.settings import Source, Stream
from include.stream.committed_batch import newest_planned
from include.stream.manifest import savepoints_of
from include.stream.reseed_plan import ReseedOptions, plan_later_reseed
from include.text_table import counted


def refuse_erasure(lake: Lake, key: ErasedKey, begun: Erasure | None) -> None:
    """LakeError when a key cannot be erased as the lake is; `begun`: an erasure of it is open."""
    source = key.source
    refuse_aside(lake)
    bronze = f"bronze/{source.name}"
    is_there = lake.is_delta_table(lake.bronze(source.name))
    columns = delta_table(lake.bronze(source.name)).schema().fields if is_there else []
    if lacks := set(key.values) - {column.name for column in columns}:
        streams = (f"./stateful stream {each.name}" for each in streams_of(source.name))
        raise LakeError(
            f"there is no {bronze} with a column {min(lacks)} yet: ingest first",
            code="nothing_there",
            subject=bronze,
            command=next(streams, None),
        )
    _refuse_changed(lake, source, begun)
    if amendments_of(lake, source.name).open_repair is not None:
        raise LakeError(
            f"a repair of the clock of {source.name} is open: finish it first",
            code="unfinished_repair",
            subject=source.name,
        )
    for stream in streams_of(source.name):
        _refuse_stream(lake, stream, key, begun)


def refuse_aside(lake: Lake) -> None:
    """LakeError while something lies aside, which may have the key."""
    if aside := lying_aside(lake):
        raise LakeError(
            f"{lake.root}/{aside[0]} may have the key, as all that was moved aside: "
            "move it out of the lake, or delete it",
            code="not_erasable",
            subject=aside[0],
        )


def _refuse_changed(lake: Lake, source: Source, begun: Erasure | None) -> None:
    """LakeError where bronze or quarantine is another than we have made it: it may have the key."""
    if begun is not None and begun.bronze_version is None:
        return  # it is being rewritten
    try:
        if lake.is_delta_table(lake.ingest_log(source.name)):
            Ingestion.open(lake, source)
    except LakeError as error:
        raise LakeError(
            f"{error.message}: put the table back from a copy that is not older first",
            code="changed_by_others",
            subject=f"bronze/{source.name}",
        ) from error


def _refuse_stream(lake: Lake, stream: Stream, key: ErasedKey, begun: Erasure | None) -> None:
    if unknown := find_old_generations(lake, stream, EPOCH).unknown:
        raise LakeError(
            f"{lake.root}/checkpoints/{stream.name} has {', '.join(unknown)}, which is of no generation of "
            "the table, and may hold the key: move it out of the lake, or delete it",
            code="not_erasable",
            subject=f"checkpoints/{stream.name}",
        )
    generations = read_generations(lake, stream.name)
    if generations.current is None and (left := _left_of(lake, generations)):
        raise LakeError(
            f"{left} is there, and may have the key, but no record of {stream.name} is, which would not be "
            f"made anew: put its table back from a copy that is not older, or make the stream anew",
            code="not_erasable",
            subject=stream.name,
            command=f"./stateful reseed {stream.name} --recompute --apply",
        )
    if _is_initial(lake, stream, key):
        raise LakeError(
            f"the initial state of {stream.name} has the key: take it out of {lake.initial_state(stream.name)}, "
            "which is yours, and repeat",
            code="not_erasable",
            subject=f"initial_state/{stream.name}",
        )


def _left_of(lake: Lake, generations: Generations) -> str | None:
    """What a stream that has run has written; None when there is nothing of it."""
    stream = generations.stream
    for path in (lake.table(stream), lake.dead_letters(stream)):
        if lake.is_delta_table(path) and open_table(path).file_uris():
            return path
    if savepoints_of(lake, stream):
        return lake.savepoints(stream)
    checkpoint = lake.checkpoint(stream, generations.number)
    return None if newest_planned(lake, checkpoint) is None else checkpoint


def _is_initial(lake: Lake, stream: Stream, key: ErasedKey) -> bool:
    """Whether a stream's initial state has all of the key as words."""
    if lake.is_delta_table(lake.initial_state(stream.name)):
        told = str(dataset_of(lake.initial_state(stream.name)).to_table().to_pylist())
    else:
        try:
            told = lake.read(lake.initial_state_file(stream.name)).decode(errors="replace")
        except FileNotFoundError:
            return False
    return all(mentions(told, text) for text in key.texts.values() if text is not None)


@dataclass(frozen=True)
class ErasePlan:
    """An erasure, decided. `begun`: it was begun before, and is to be finished."""

    key: ErasedKey
    found: Found
    landed: tuple[str, ...]  # files that are still in landing
    own: tuple[str, ...]  # streams that keep states by the key
    others: tuple[str, ...]  # streams that may have folded its rows into states of other keys
    waiting: int  # landed files that are not taken yet
    unread: int  # files that were refused as a whole: nobody knows what is in them
    undeclared: tuple[str, ...]  # what no source or stream of today has, below the lake
    elsewhere: tuple[str, ...]  # other sources that may have it
    reseeds: tuple[str, ...]  # what becomes of the streams that ever ran, bronze being as it is now
    bronze_id: str
    begun: Erasure | None

    @property
    def is_back(self) -> bool:
        """Whether bronze, or quarantine, has the key again, which was taken out of it: by an older copy, or
        as it has landed again."""
        was_taken_out = self.begun is not None and self.begun.bronze_version is not None
        return was_taken_out and bool(self.found.rows or self.found.refused)

    @property
    def counts(self) -> dict[str, int]:
        """What the first note of the erasure says."""
        found = self.found
        return {
            "rows_bronze": found.rows,
            "rows_quarantined": len(found.refused),
            "files_landed": len(self.landed),
        }

    def text(self) -> str:
        """The plan for people. It does not name the key."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        source, found = self.key.source, self.found
        yield (
            f"erase a key of {source.name} ({', '.join(self.key.values)})"
            f"{', which was begun and is not finished' if self.begun else ''}: "
            f"{counted(found.rows, 'row')} of bronze on {counted(len(found.dates), 'date')}, "
            f"{counted(len(found.refused), 'row')} of quarantine"
        )
        if source.origin is None:
            yield (
                f"- landing: {counted(len(self.landed), 'file')} with such rows deleted as a whole; "
                f"bronze keeps their other rows: {', '.join(self.landed) or 'none'}"
            )
        else:
            yield f"- {place_of(source)} is not ours: erase it there, too"
        yield "- bronze and quarantine: these dates are written again without it; older versions deleted"
        for name in self.own:
            yield f"- {name} keeps states by it: its state, table and savepoints are made anew from bronze"
        for name in self.others:
            yield f"- {name} may have folded its rows into states of other keys: made anew, too"
        if self.own or self.others:
            yield (
                "  Each from the beginning, as `reseed --recompute`: late rows of others are taken in. Rows "
                "of other keys are equal, not the same bytes. Savepoints and replaced checkpoints are deleted"
            )
        yield from (f"  {reseed}" for reseed in self.reseeds)
        yield "- ops: texts of errors, findings and alerts of the source and its streams are replaced"
        yield "- all these tables: no older version, change feed or log can be read any more"
        yield from self._left()

    def _left(self) -> Iterator[str]:
        """What is for people to do."""
        if self.waiting:
            yield (
                f"NOT looked into: {counted(self.waiting, 'file')} of landing not taken yet. What they have "
                "of the key comes back with them: run a stream of the source first"
            )
        if self.unread:
            yield (
                f"NOT looked into: {counted(self.unread, 'file')} of landing that quarantine has as a whole "
                "(row_number 0). Delete what is of the key"
            )
        if self.undeclared:
            yield (
                f"NOT looked into: {', '.join(self.undeclared)}, of no source or stream that is declared: "
                "delete what may have the key"
            )
        if self.elsewhere:
            yield f"NOT touched: {', '.join(self.elsewhere)}: erase it there, too"
        yield (
            "NOT ours: copies and snapshots of the lake, Airflow (delete logs, XComs and Dag run "
            "notes up to now), what reads your tables, a file that lands again, this shell's history"
        )


def plan_erasure(lake: Lake, key: ErasedKey) -> ErasePlan:
    """The plan. LakeError when it cannot be carried out; SettingsError when another one is open, or
    nothing of the key is there."""
    source = key.source.name
    begun = _begun(lake, key)
    refuse_erasure(lake, key, begun)
    found = find(lake, key)
    if begun is None and not found.rows and not found.refused:
        same = [e.erasure for e in amendments_of(lake, source).erasures if e.is_of(key.texts)]
        before = f": it was erased (erasure {same[-1]} of the ingest log)" if same else ""
        raise SettingsError(
            f"{source} has no row of that key{before}",
            code="nothing_there",
            subject=source,
        )
    own, others = streams_by_key(key)
    return ErasePlan(
        key,
        found,
        tuple(files_in_landing(lake, source, found.files)),
        own=tuple(stream.name for stream in own),
        others=tuple(stream.name for stream in others),
        waiting=0 if key.source.origin else waiting(lake, key.source),
        unread=_unread(lake, source),
        undeclared=tuple(_undeclared(lake)),
        elsewhere=tuple(_elsewhere(lake, key)),
        reseeds=tuple(_reseeds(lake, source)),
        bronze_id=str(delta_table(lake.bronze(source)).metadata().id),
        begun=begun,
    )


def _elsewhere(lake: Lake, key: ErasedKey) -> Iterator[str]:
    """Other sources with a field of its name, or whose rows come from a table of its streams."""
    source = key.source
    tables = {lake.table(stream.name): stream.name for stream in streams_of(source.name)}
    for other in all_sources():
        uri = other.origin.uri if other.origin else ""
        read = tables.get(unquote(uri.removeprefix("file://")).rstrip("/"))
        if other.name != source.name and set(key.values) & {field.name for field in other.fields}:
            yield f"{other.name}, with a field of that name"
        elif read is not None:
            yield f"{other.name}, which reads the table of {read}, by the field that has the key there"


def _reseeds(lake: Lake, source: str) -> Iterator[str]:
    """The plans; or the error of one that is refused, which must be known before a row is gone."""
    for stream in streams_of(source):
        if read_generations(lake, stream.name).current is not None:
            plan = plan_later_reseed(lake, stream, ReseedOptions(recompute=True))
            if plan.moved is not None:  # and so would rows of the key
                raise damaged(lake.table(stream.name), plan.moved)
            yield plan.text()


def _begun(lake: Lake, key: ErasedKey) -> Erasure | None:
    begun = amendments_of(lake, key.source.name).open_erasure
    if begun is not None and not begun.is_of(key.texts):
        raise SettingsError(
            f"an erasure of another key of {key.source.name} was begun and is not finished: finish it first, "
            f"with its key (erasure {begun.erasure} of the ingest log has a hash of it)",
            code="unfinished_erasure",
            subject=key.source.name,
        )
    return begun


def _undeclared(lake: Lake) -> Iterator[str]:
    """Tables and states of a source or stream that has been taken out, or renamed."""
    declared = {*source_names(), *stream_names(), "ingest"}
    for kind in ("bronze", "quarantine", "tables", "dead_letters", "savepoints", "checkpoints"):
        found = set(lake.folders(f"{lake.root}/{kind}"))
        yield from (f"{kind}/{name}" for name in sorted(found - declared))


def _unread(lake: Lake, source: str) -> int:
    if not lake.is_delta_table(lake.quarantine(source)):
        return 0
    rows = dataset_of(lake.quarantine(source)).to_table(columns=["row_number", "resolved_at"])
    return sum(row["row_number"] == 0 and row["resolved_at"] is None for row in rows.to_pylist())
