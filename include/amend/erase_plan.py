"""An erasure's plan: what would be done, and what stands in its way."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from include.amend.erase_rows import ErasedKey, Found, files_in_landing, find, mentions
from include.ingest.amendments import SET_WATERMARK, Amendment, amendments_of
from include.ingest.ingest_log import Ingestion
from include.ingest.source_connector import place_of, waiting
from include.lake.delta_log import dataset_of, delta_table, lying_aside, open_table
from include.lake.errors import LakeError, SettingsError, damaged
from include.lake.generations import Generations, read_generations
from include.lake.paths import Lake
from include.maintain.table_maintenance import unknown_folders
from include.registry import all_sources, source_names, stream_names, streams_of
from include.settings import Stream
from include.stream.checkpoint import newest_planned
from include.stream.manifest import savepoints_of
from include.stream.rebuild_plan import RebuildOptions, plan_later_rebuild
from include.text_table import counted, text_table


def _refuse(lake: Lake, key: ErasedKey) -> None:
    """LakeError when a key cannot be erased as the lake is."""
    source = key.source
    if aside := lying_aside(lake):
        raise _in_the_way(
            aside[0], f"{aside[0]} may have the key: move it out of the lake, or delete it"
        )
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
        Ingestion(lake, source)  # what others have changed may have the key
    for stream in streams_of(source.name):
        _refuse_stream(lake, stream, key)


def _refuse_stream(lake: Lake, stream: Stream, key: ErasedKey) -> None:
    if unknown := unknown_folders(lake, stream):
        path = f"checkpoints/{stream.name}"
        said = f"{path} has {', '.join(unknown)}, which is of no generation of the table"
        raise _in_the_way(
            path, f"{said}, and may hold the key: move it out of the lake, or delete it"
        )
    generations = read_generations(lake, stream.name)
    if generations.current is None and _has_run(lake, generations):
        said = f"{stream.name} has run, and no record is left to make it anew by: do that first"
        raise _in_the_way(
            stream.name, said, f"./stateful rebuild {stream.name} --full-refresh --apply"
        )
    if _is_initial(lake, stream, key):
        path = f"initial_state/{stream.name}"
        raise _in_the_way(path, f"{path}, which is yours, has the key: take it out, and repeat")


def _in_the_way(subject: str, said: str, command: str | None = None) -> LakeError:
    return LakeError(said, code="not_erasable", subject=subject, command=command)


def _has_run(lake: Lake, generations: Generations) -> bool:
    """Whether there is anything that a stream which runs has written."""
    stream = generations.stream
    tables = filter(lake.is_delta_table, (lake.table(stream), lake.dead_letters(stream)))
    checkpoint = lake.checkpoint(stream, generations.number)
    return (
        any(open_table(path).file_uris() for path in tables)
        or bool(savepoints_of(lake, stream))
        or newest_planned(lake, checkpoint) is not None
    )


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
    waiting: int  # landed files that are not taken yet
    unread: int  # files that were refused as a whole: nobody knows what is in them
    undeclared: tuple[str, ...]  # what no source or stream of today has, below the lake
    elsewhere: tuple[str, ...]  # other sources that may have it
    rebuilds: tuple[
        str, ...
    ]  # what becomes of the streams that ever ran, bronze being as it is now
    begun: Amendment | None

    @property
    def counts(self) -> dict[str, int]:
        rows, refused, files = self.found.rows, len(self.found.refused), len(self.landed)
        return {"rows_bronze": rows, "rows_quarantined": refused, "files_landed": files}

    def text(self) -> str:
        """The plan for people. It does not name the key."""
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
            ("streams", len(streams), f"made anew from the beginning: {', '.join(streams)}"),
        ]
        left = [
            ("files not taken yet", self.waiting, "NOT looked into: ingest them first"),
            ("files refused whole", self.unread, "NOT looked into: delete what is of the key"),
            ("undeclared", len(self.undeclared), f"NOT looked into: {', '.join(self.undeclared)}"),
            ("elsewhere", len(self.elsewhere), f"NOT touched: {'; '.join(self.elsewhere)}"),
        ]
        rows = [(part, f"{count:,}", told) for part, count, told in (*done, *left) if count]
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
    """The plan; LakeError when it cannot be done, SettingsError of a key without rows."""
    source = key.source.name
    begun = _begun(lake, key)
    _refuse(lake, key)
    found = find(lake, key)
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
    )


def _elsewhere(lake: Lake, key: ErasedKey) -> Iterator[str]:
    """Other sources with a field of its name, or whose rows come from a table of its streams."""
    source = key.source
    tables = {lake.table(stream.name): stream.name for stream in streams_of(source.name)}
    for other in all_sources():
        uri = other.connector.uri if other.connector else ""
        read = tables.get(unquote(uri.removeprefix("file://")).rstrip("/"))
        if other.name != source.name and set(key.values) & {field.name for field in other.fields}:
            yield f"{other.name}, with a field of that name"
        elif read is not None:
            yield f"{other.name}, which reads the table of {read}, by the field that has the key there"


def _rebuilds(lake: Lake, source: str) -> Iterator[str]:
    """The plans; or the error of one that is refused, which must be known before a row is gone."""
    for stream in streams_of(source):
        if read_generations(lake, stream.name).current is not None:
            plan = plan_later_rebuild(lake, stream, RebuildOptions(full_refresh=True))
            if plan.moved is not None:  # and so would rows of the key
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
