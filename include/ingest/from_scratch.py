"""Ingest a source anew from where it comes: `./stateful ingest SOURCE --from-scratch`.

The tables that a source is ingested into stand and fall together, with the ingest log. They are moved
out of the way, and nothing is deleted.
"""

from collections.abc import Iterator

from include.ingest.amendments import amendments_of
from include.ingest.ingest_log import read_done
from include.ingest.landed_file import landed_files
from include.ingest.origin import place_of
from include.job import nothing_running
from include.lake.aside import is_there, move_aside
from include.lake.errors import OF_SOURCE, LakeError
from include.lake.paths import Lake
from include.registry import streams_of
from include.settings import Source
from include.text_table import counted


def plan_from_scratch(lake: Lake, source: Source) -> str:
    """What is moved, and what follows of it. LakeError while a key is being erased, which needs bronze."""
    _refuse_erasing(lake, source.name)
    return "\n".join(_lines(lake, source))


def move_source_aside(lake: Lake, source: Source) -> None:
    """Move its tables, once no job of it or of its streams runs. A repeat moves what one that was cut
    off has left."""
    with nothing_running(lake, [source.name], streams_of(source.name)):
        _refuse_erasing(lake, source.name)
        move_aside(lake, [f"{part}/{source.name}" for part in OF_SOURCE])


def _refuse_erasing(lake: Lake, source: str) -> None:
    try:
        erasure = amendments_of(lake, source).open_erasure
    except LakeError:
        return  # of an ingest log that cannot be read nothing is left to go on with
    if erasure is not None:
        raise erasure.unfinished("ingestion from scratch")


def _lines(lake: Lake, source: Source) -> Iterator[str]:
    tables = [f"{part}/{source.name}" for part in OF_SOURCE]
    moved = ", ".join(name for name in tables if is_there(lake, name))
    yield f"moves {moved or 'nothing'} into set_aside/, and ingests {place_of(source)} anew"
    yield _not_again(lake, source)
    yield "rows that were corrected and taken in by reingest have to be so again"
    reseeds = [
        f"`./stateful reseed {stream.name} --apply`"
        for stream in streams_of(source.name)
        if _has_run(lake, stream.name)
    ]
    if reseeds:
        yield f"its streams that have run stop until they are made anew: {'; '.join(reseeds)}"


def _has_run(lake: Lake, stream: str) -> bool:
    """By what is there: what is recorded of it may be what is damaged."""
    return any(is_there(lake, f"{kind}/{stream}") for kind in ("checkpoints", "tables"))


def _not_again(lake: Lake, source: Source) -> str:
    """What was taken, and nobody can take again."""
    if source.origin is not None:
        return f"what {source.name} comes from no longer has does not come again"
    try:
        done = read_done(lake, source.name)
    except LakeError:
        return "of files that are no longer in landing the rows do not come again"
    gone = len(done.names - {file.name for file in landed_files(lake, source.name)})
    if not gone:
        return "all files that were taken are still in landing"
    return f"{counted(gone, 'file')} of those taken are not in landing any more: DATA IS LOST"
