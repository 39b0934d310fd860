"""The checkpoints of generations that a reseed has replaced: kept for a while, then deleted.

The row of `ops/generations` is marked first, so that nobody goes back to what is half deleted.
Whether a folder goes is decided by its time alone: what was cut off is finished the next time.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyarrow import fs

from include.lake.generations import read_generations
from include.lake.lease import LeaseTakenError, hold_lease
from include.lake.ops import update_ops
from include.lake.paths import Lake, LakeError
from include.settings import Stream
from include.text_table import bytes_text

KEY = ("stream", "generation")

log = logging.getLogger("table_care")


@dataclass(frozen=True)
class OldGeneration:
    """A generation whose checkpoint may go."""

    stream: str
    generation: int
    checkpoint: str
    replaced_at: datetime
    is_there: bool  # the checkpoint's folder
    is_marked: bool  # as deleted, in ops/generations


@dataclass(frozen=True)
class OldGenerations:
    """What the checkpoints of one stream come to; all empty when there is nothing to do or say."""

    expired: tuple[OldGeneration, ...] = ()
    unknown: tuple[str, ...] = ()  # folders that no row of ops/generations knows


def find_old_generations(lake: Lake, stream: Stream, now: datetime) -> OldGenerations:
    """The replaced generations of `stream` whose time is over, as its `keep_generations` says."""
    folders = lake.folders(f"{lake.root}/checkpoints/{stream.name}")
    generations = read_generations(lake, stream.name)
    known = {str(row["generation"]) for row in generations.rows}
    # Before its first row is written, a stream runs on the first generation all the same.
    known.add(str(generations.number))
    marked = {row["generation"] for row in generations.rows if row["deleted_at"] is not None}
    found = [
        OldGeneration(
            stream.name,
            generation,
            lake.checkpoint(stream.name, generation),
            replaced_at=instant,
            is_there=str(generation) in folders,
            is_marked=generation in marked,
        )
        for generation, instant in generations.replaced_at().items()
        if instant + stream.savepoints.keep_generations <= now
    ]
    return OldGenerations(
        tuple(old for old in found if old.is_there or not old.is_marked),
        tuple(name for name in folders if name not in known),
    )


def format_old_generations(lake: Lake, streams: Iterable[Stream], now: datetime) -> str:
    """What is deleted of the streams' checkpoints, and what is left alone, for people."""
    lines = [
        line
        for stream in streams
        for line in _lines(lake, stream, find_old_generations(lake, stream, now))
    ]
    return "\n".join(["old generations:", *(lines or ["  nothing to delete"])])


def _lines(lake: Lake, stream: Stream, found: OldGenerations) -> Sequence[str]:
    return [
        *(f"  to delete: {_named(old)}" for old in found.expired),
        *(
            f"  left alone: {lake.root}/checkpoints/{stream.name}/{name}, which ops/generations "
            "does not know: move it away if it is nobody's"
            for name in found.unknown
        ),
    ]


def delete_replaced_generations(lake: Lake, stream: Stream) -> None:
    """Delete every checkpoint of `stream` but the current one, whatever its time. Under its lease."""
    forever = datetime.max.replace(tzinfo=UTC)
    for old in find_old_generations(lake, stream, forever).expired:
        _delete(lake, old)


def delete_old_generations(lake: Lake, stream: Stream) -> list[int]:
    """Delete the checkpoints of `stream` whose time is over, under its lease; which ones.

    None when another job holds the lease: the next day will do. Raises LakeError when a folder
    cannot be deleted; what is left of it goes the next time.
    """
    if not find_old_generations(lake, stream, datetime.now(UTC)).expired:
        return []
    try:
        with hold_lease(lake, f"stream-{stream.name}"):
            found = find_old_generations(lake, stream, datetime.now(UTC))
            for old in found.expired:
                _delete(lake, old)
            return [old.generation for old in found.expired if old.is_there]
    except LeaseTakenError as error:
        log.info("old generations of %s are left for the next day: %s", stream.name, error)
        return []


def _delete(lake: Lake, old: OldGeneration) -> None:
    if not old.is_marked:
        row = {"stream": old.stream, "generation": old.generation, "deleted_at": datetime.now(UTC)}
        update_ops(lake, "generations", KEY, [row])
    if not old.is_there:
        log.info("nothing to delete: %s", _named(old))
        return
    folder = lake.path_in_filesystem(old.checkpoint)
    try:
        found = lake.filesystem.get_file_info(fs.FileSelector(folder, recursive=True))
        lake.filesystem.delete_dir(folder)
    except OSError as error:
        raise LakeError(
            f"{old.checkpoint}, of a generation that is over, cannot be deleted ({error}): see to "
            "its permissions, or to who holds it, and repeat",
            subject=f"checkpoints/{old.stream}/{old.generation}",
        ) from error
    files = [info.size for info in found if info.type == fs.FileType.File]
    log.info("deleted %s: %s files, %s", _named(old), f"{len(files):,}", bytes_text(sum(files)))


def _named(old: OldGeneration) -> str:
    gone = "" if old.is_there else ", whose folder is gone"
    return (
        f"generation {old.generation} of {old.stream}, replaced {old.replaced_at:%Y-%m-%d %H:%M} "
        f"UTC ({old.checkpoint}{gone})"
    )
