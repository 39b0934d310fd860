"""Plans of amendments of bronze (include/ingest/amendments.py), made without a JVM: of erasures, and of
setting a source watermark back."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow.compute as pc

from include.amend.behind import begun_behind, streams_behind
from include.amend.erase_rows import ErasedKey, KeyRows, files_in_landing, find_rows, mentions
from include.connectors import DeltaTable
from include.fold.admission import LAST_INSTANT_US, US_PER_MS, micros_of
from include.ingest.amendments import (
    ERASURE,
    SET_WATERMARK,
    Amendment,
    amended_streams,
    amendments_of,
)
from include.ingest.bronze_tables import read_quarantine
from include.ingest.ingest_log import Ingestion
from include.ingest.source_connector import place_of, waiting
from include.ingest.watermark import as_text
from include.lake.delta_log import dataset_of, delta_table, lying_aside, open_table
from include.lake.errors import LakeError, SettingsError, damaged, wrong_argument
from include.lake.generations import Generations, read_generations
from include.lake.paths import Lake
from include.maintain.table_maintenance import unknown_folders
from include.registry import (
    all_sources,
    source_named,
    source_names,
    sources_before,
    sources_behind,
    stream_names,
    streams_of,
)
from include.settings import Source, Stream
from include.stream.bronze import BronzeFiles, BronzeVersion, count_before, newest_bronze
from include.stream.checkpoint import newest_begun
from include.stream.manifest import savepoints_of
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions, plan_later_rebuild
from include.text_table import counted, text_table


def refuse_derived(source: Source, why: str) -> None:
    """Raise SettingsError for a source that is made of others."""
    if source.connector is not None and source.is_derived:
        before = map(source_named, sources_before(source.name))
        roots = " or ".join(sorted(each.name for each in before if not each.is_derived))
        said = f"{source.name} has the rows of {source.connector.place}: {why}: name {roots}"
        raise SettingsError(said, code="wrong_argument", subject=source.name)


def _refuse(lake: Lake, key: ErasedKey) -> None:
    """Raise LakeError when a key cannot be erased as the lake is."""
    source = key.source
    refuse_derived(source, "a key is erased where it landed")
    if aside := lying_aside(lake):
        said = f"{aside[0]} may have the key: move it out of the lake, or delete it"
        raise _in_the_way(aside[0], said)
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
    if lake.is_delta_table(lake.ingest_log(source.name)):
        Ingestion(lake, source)  # LakeError when others have changed bronze: it may have the key
    for stream in (*streams_of(source.name), *streams_behind(lake, source.name)):
        _refuse_stream(lake, stream, key)


def _refuse_stream(lake: Lake, stream: Stream, key: ErasedKey) -> None:
    if unknown := unknown_folders(lake, stream):
        path = f"checkpoints/{stream.name}"
        said = f"{path} has {', '.join(unknown)}, which is of no generation of the table, and may"
        raise _in_the_way(path, f"{said} have the key: move it out of the lake, or delete it")
    generations = read_generations(lake, stream.name)
    if generations.current is None and _has_run(lake, generations):
        said = f"{stream.name} has run, and no record is left to rebuild it by: do that first"
        command = f"./stateful rebuild {stream.name} --full-refresh --apply"
        raise _in_the_way(stream.name, said, command)
    if _is_initial(lake, stream, key):
        path = f"initial_state/{stream.name}"
        raise _in_the_way(path, f"{path}, which is yours, has the key: take it out, and repeat")


def _in_the_way(subject: str, said: str, command: str | None = None) -> LakeError:
    return LakeError(said, code="not_erasable", subject=subject, command=command)


def _has_run(lake: Lake, generations: Generations) -> bool:
    """True if a run of the stream has written anything."""
    stream = generations.stream
    tables = filter(lake.is_delta_table, (lake.table(stream), lake.dead_letters(stream)))
    checkpoint = lake.checkpoint(stream, generations.number)
    return (
        any(open_table(path).file_uris() for path in tables)
        or bool(savepoints_of(lake, stream))
        or newest_begun(lake, checkpoint) is not None
    )


def _is_initial(lake: Lake, stream: Stream, key: ErasedKey) -> bool:
    """True if a stream's initial state has all values of the key as words."""
    if lake.is_delta_table(lake.initial_state(stream.name)):
        content = str(dataset_of(lake.initial_state(stream.name)).to_table().to_pylist())
    else:
        try:
            content = lake.read(lake.initial_state_file(stream.name)).decode(errors="replace")
        except FileNotFoundError:
            return False
    return all(mentions(content, text) for text in key.texts.values() if text is not None)


@dataclass(frozen=True)
class ErasePlan:
    """The plan of an erasure."""

    key: ErasedKey
    found: KeyRows
    landed: tuple[str, ...]  # files of the key that are still in landing
    waiting: int  # landed files that are not ingested yet
    unread: int  # files that were refused as a whole: nobody knows what is in them
    undeclared: tuple[str, ...]  # folders in the lake of no source or stream of today
    elsewhere: tuple[str, ...]  # other sources that may have the key
    rebuilds: tuple[str, ...]  # plans for the streams that ever ran, by bronze as it is now
    begun: Amendment | None  # the erasure that was begun before, and is to be finished
    behind: tuple[str, ...] = ()  # what is made of the source, and may have it, too

    @property
    def counts(self) -> dict[str, int]:
        rows, refused, files = self.found.rows, len(self.found.refused), len(self.landed)
        return {"rows_bronze": rows, "rows_quarantined": refused, "files_landed": files}

    def text(self) -> str:
        """Return the plan for a terminal. It does not name the key."""
        source, found = self.key.source, self.found
        heading = (
            f"erase a key of {source.name} ({', '.join(self.key.values)})"
            f"{', which was begun and is not finished' if self.begun else ''}: "
            f"{counted(found.rows, 'row')} of bronze, {counted(len(found.refused), 'row')} of quarantine"
        )
        streams = [stream.name for stream in streams_of(source.name)]
        landed = f"deleted as a whole: {', '.join(self.landed)}; bronze keeps their other rows"
        done = [
            ("dates of bronze", len(found.dates), "written again without it"),
            (place_of(source), len(self.landed), landed),
            ("streams", len(streams), f"rebuilt from the beginning: {', '.join(streams)}"),
            ("behind", len(self.behind), f"made anew, bronze and table: {', '.join(self.behind)}"),
        ]
        left = [
            ("files not ingested yet", self.waiting, "NOT looked into: ingest them first"),
            ("files refused whole", self.unread, "NOT looked into: delete what is of the key"),
            ("undeclared", len(self.undeclared), f"NOT looked into: {', '.join(self.undeclared)}"),
            ("elsewhere", len(self.elsewhere), f"NOT touched: {'; '.join(self.elsewhere)}"),
        ]
        rows = [(part, f"{count:,}", what) for part, count, what in (*done, *left) if count]
        if source.connector is not None:
            rows.append((place_of(source), "", "NOT ours: erase it there, too"))
        rows += [
            ("ops", "", "texts of the source and its streams are replaced"),
            ("all these tables", "", "no older version, change feed, log or savepoint is left"),
            ("outside", "", "NOT ours: copies of the lake, Airflow's logs and XComs, your readers"),
        ]
        table = text_table(("where", "how many", "what becomes of it"), rows)
        return "\n".join([heading, *table, *self.rebuilds])


def plan_erasure(lake: Lake, key: ErasedKey) -> ErasePlan:
    """Plan an erasure; LakeError when it cannot be done, SettingsError for a key without rows."""
    source = key.source.name
    begun = _begun(lake, key)
    _refuse(lake, key)
    found = find_rows(lake, key)
    if begun is None and not found.rows and not found.refused:
        said = f"{source} has no row of that key"
        raise SettingsError(said, code="nothing_there", subject=source)
    return ErasePlan(
        key,
        found,
        tuple(files_in_landing(lake, source, found.files)),
        waiting=0 if key.source.connector else waiting(lake, key.source),
        unread=_unread(lake, source),
        undeclared=tuple(_undeclared(lake)),
        elsewhere=tuple(_elsewhere(lake, key)),
        rebuilds=tuple(_rebuilds(lake, source)),
        begun=begun,
        behind=tuple(
            name
            for each in begun_behind(lake, source)
            for name in (each.name, *(stream.name for stream in streams_of(each.name)))
        ),
    )


def _elsewhere(lake: Lake, key: ErasedKey) -> Iterator[str]:
    """Other sources with a field of the key's name, or that read a table of the source's streams."""
    source = key.source
    tables = {lake.table(stream.name): stream.name for stream in streams_of(source.name)}
    behind = sources_behind(source.name)
    for other in all_sources():
        uri = other.connector.uri if isinstance(other.connector, DeltaTable) else ""
        read = tables.get(unquote(uri.removeprefix("file://")).rstrip("/"))
        if other.name in behind:
            continue
        if other.name != source.name and set(key.values) & {field.name for field in other.fields}:
            yield f"{other.name}, with a field of that name"
        elif read is not None:
            yield f"{other.name}, which reads the table of {read}, by the field that has the key there"


def _rebuilds(lake: Lake, source: str) -> Iterator[str]:
    """The plans of rebuilds; one that is refused must be known before a row is gone."""
    for stream in streams_of(source):
        opened = open_stream(lake, stream)
        if opened.row is not None:
            plan = plan_later_rebuild(opened, RebuildOptions(full_refresh=True))
            if plan.moved is not None:  # rows of the key would be moved aside with it
                raise damaged(lake.table(stream.name), plan.moved)
            yield plan.text()


def _begun(lake: Lake, key: ErasedKey) -> Amendment | None:
    begun = amendments_of(lake, key.source.name).open
    if begun is not None and begun.kind == SET_WATERMARK:
        raise begun.unfinished("an erasure")
    if begun is not None and not begun.is_of(key.texts):
        raise SettingsError(
            f"an erasure of another key of {key.source.name} was begun and is not finished: finish it first, "
            f"with its key (amendment {begun.number} of the ingest log has a hash of it)",
            code="unfinished_erasure",
            subject=key.source.name,
        )
    return begun


def _undeclared(lake: Lake) -> Iterator[str]:
    """Tables and states of sources and streams that were taken out or renamed."""
    declared = {*source_names(), *stream_names(), "ingest"}
    for kind in ("bronze", "quarantine", "tables", "dead_letters", "savepoints", "checkpoints"):
        found = set(lake.folders(f"{lake.root}/{kind}"))
        yield from (f"{kind}/{name}" for name in sorted(found - declared))


def _unread(lake: Lake, source: str) -> int:
    is_open_file = (pc.field("row_number") == 0) & pc.field("resolved_at").is_null()
    found = read_quarantine(lake, source, is_open_file, columns=["row_number"])
    return sum(rows.num_rows for rows in found)


class WatermarkPlan(NamedTuple):
    """The plan to set a source watermark back to `to_us`."""

    begun: Amendment | None  # the open one, which is finished
    to_us: int
    text: str  # for people


def plan_set_watermark(lake: Lake, source: Source, to: datetime | None) -> WatermarkPlan:
    """Plan to set a source watermark back, or to finish what was begun. Raises SettingsError for an
    instant that cannot be, LakeError without bronze and while a key is being erased from it."""
    refuse_derived(source, "its watermark is until when that is complete, and not set back")
    begun = amendments_of(lake, source.name).open
    to_us = None if to is None else micros_of(to) // US_PER_MS * US_PER_MS  # as watermarks are
    if begun is not None:
        return _finishing(begun, to_us)
    if to_us is None:
        said = f"no set-watermark of {source.name} is unfinished: --to is missing"
        raise wrong_argument("--to", said)
    bronze = newest_bronze(lake, source.name)
    _refuse_instant(source, bronze, to_us)
    before, all_ = count_before(bronze, "event_time", None, cutoffs_us=[to_us + 1, LAST_INSTANT_US])
    streams = [stream.name for stream, _ in amended_streams(lake, source.name)]
    said = (
        f"set the watermark of {source.name} back from {as_text(bronze.watermark_us)} to "
        f"{as_text(to_us)}: {counted(all_ - before, 'row')} after that must wait until it comes so far; "
        f"streams that are rebuilt, late rows included: {', '.join(streams) or 'none'}"
    )
    return WatermarkPlan(None, to_us, said)


def _finishing(begun: Amendment, to_us: int | None) -> WatermarkPlan:
    source = begun.source
    if begun.kind == ERASURE:
        raise begun.unfinished("set-watermark")
    if to_us not in (None, begun.to_us):
        raise SettingsError(
            f"set-watermark of {source} to {as_text(begun.to_us)} is unfinished: finish it first",
            code="unfinished_set_watermark",
            subject=source,
            command=f"./stateful set-watermark {source} --apply",
        )
    said = f"finish set-watermark of {source}: its watermark is at {as_text(begun.to_us)} then"
    return WatermarkPlan(begun, begun.to_us, said)


def _refuse_instant(source: Source, bronze: BronzeVersion, to_us: int) -> None:
    # The watermark after the first commit, floored to a millisecond, as watermarks are.
    first = pc.min(BronzeFiles(delta_table(bronze.path)).instants("min", "watermark_after"))
    first_us, last_us = first.as_py(), min(bronze.watermark_us - 1, micros_of(datetime.now(UTC)))
    if not first_us <= to_us <= last_us:
        raise wrong_argument(
            "--to",
            f"the watermark of {source.name} is only set back: give --to from {as_text(first_us)} until "
            f"{as_text(last_us)}, not {as_text(to_us)}",
        )
