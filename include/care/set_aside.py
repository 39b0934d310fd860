"""Put what is damaged out of the way, for it to be made anew: `./stateful set-aside`.

Nothing is deleted: it lies below `set_aside/` in the lake, under the time, and can be moved back. The
tables that a source is ingested into stand and fall together, with the ingest log.
"""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from pyarrow import fs

from include.checkpoint.checkpoint_files import newest_planned
from include.lake.how_to_mend import OF_SOURCE
from include.lake.lease import hold_lease
from include.lake.paths import Lake, LakeError
from include.landing.erasures import erasures_of
from include.landing.ingest_log import read_done
from include.landing.landed_content import landed_files
from include.registry import all_sources, all_streams, source_names, streams_of
from include.text_table import counted

PART = re.compile(
    r"(bronze|quarantine|ingest_log|tables|rejected|savepoints|ops)/([^/]+)"
    r"|(checkpoints)/([^/]+)/\d+(/[^/]+)*"
)


@dataclass(frozen=True)
class SetAside:
    """What is moved, below the lake; where to; and what follows of it."""

    names: tuple[str, ...]
    target: str
    follows: tuple[str, ...]

    def text(self) -> str:
        lines = [f"moves {', '.join(self.names)} to {self.target}", *self.follows]
        return "\n".join(lines)


def plan_set_aside(lake: Lake, names: Sequence[str], now: datetime) -> SetAside:
    """LakeError when one is no table and no part of a checkpoint, or is not there."""
    parts = [_part(lake, name.strip("/")) for name in names]
    target = f"set_aside/{now.astimezone(UTC):%Y%m%dT%H%M%S.%f}"
    moved = dict.fromkeys(name for names, _ in parts for name in names)
    follows = dict.fromkeys(line for _, lines in parts for line in lines)
    return SetAside(tuple(moved), target, tuple(follows))


def _part(lake: Lake, name: str) -> tuple[list[str], list[str]]:
    """What is moved with it, itself included, and what follows of that."""
    if not PART.fullmatch(name) or ".." in name:
        raise LakeError(
            f"{name!r} is not to be set aside: name a table, such as bronze/signals or ops/batches, or "
            "a file of a checkpoint, such as checkpoints/user_counts/1/commits/7",
            code="wrong_argument",
            subject=name,
        )
    kind, subject = PurePosixPath(name).parts[:2]
    is_of_source = kind in OF_SOURCE and subject in source_names()
    if is_of_source and not all(erasure.is_done for erasure in erasures_of(lake, subject)):
        raise LakeError(
            f"an erasure of a key of {subject} was begun and is not finished, and needs bronze/{subject}: "
            "finish it first",
            code="unfinished_erasure",
            subject=subject,
        )
    parts = [f"{part}/{subject}" for part in OF_SOURCE]
    wanted = parts if is_of_source else [name, _checksum_of(name)]
    names = [each for each in wanted if _exists(lake, each)]
    if not names:
        raise LakeError(
            f"{lake.root}/{name} is not there: nothing is to be set aside",
            code="nothing_there",
            subject=name,
        )
    return names, _follows(lake, name, is_of_source)


def _checksum_of(name: str) -> str:
    """Hadoop's, beside a file on a local disk: without the file it would stop the next one."""
    path = PurePosixPath(name)
    return str(path.with_name(f".{path.name}.crc"))


def _exists(lake: Lake, name: str) -> bool:
    info = lake.filesystem.get_file_info(lake.path_in_filesystem(f"{lake.root}/{name}"))
    return bool(info.type != fs.FileType.NotFound)


def _follows(lake: Lake, name: str, is_of_source: bool) -> list[str]:
    kind, subject = PurePosixPath(name).parts[:2]
    reseed = f"./stateful reseed {subject}"
    if is_of_source:
        return _follows_of_source(lake, subject)
    if kind == "tables":
        return [f"then all its rows are made anew by `{reseed} --apply`"]
    if kind == "rejected":
        return [f"then all its rows are made anew by `{reseed} --recompute --apply`"]
    if kind == "checkpoints":
        if (
            len(PurePosixPath(name).parts) == 3
            and newest_planned(lake, f"{lake.root}/{name}") is not None
        ):
            return [f"then its state is made anew by `{reseed} --apply`"]
        return [
            f"then go on with `./stateful stream {subject}`; if that lacks it, `{reseed} --apply`"
        ]
    if kind == "ops":
        return [
            "what it told of the past is not known any more; a stream that needs it says so at its "
            "next run, with what to do",
        ]
    return ["it is made anew when it is needed"]


def _follows_of_source(lake: Lake, source: str) -> list[str]:
    streams = [stream.name for stream in streams_of(source)]
    again = "; ".join(f"`./stateful stream {name}`" for name in streams)
    reseeds = [f"`./stateful reseed {name} --apply`" for name in streams if _has_run(lake, name)]
    stopped = (
        f"and its streams that have run, which stop until then, go on after {'; '.join(reseeds)}"
    )
    return [
        *_not_again(lake, source),
        "rows that were corrected and taken in by reingest have to be so again",
        f"then {source} is ingested anew by {again}",
        *([stopped] if reseeds else []),
    ]


def _has_run(lake: Lake, stream: str) -> bool:
    """By what is there: what is recorded of it may be what is damaged."""
    return any(_exists(lake, f"{kind}/{stream}") for kind in ("checkpoints", "tables"))


def _not_again(lake: Lake, source: str) -> list[str]:
    """Of files that were taken, those that nobody can take again."""
    origin = next(each.origin for each in all_sources() if each.name == source)
    if origin is not None:
        return [f"what {source} comes from no longer has does not come again"]
    try:
        done = read_done(lake, source)
    except LakeError:
        return ["of files that are no longer in landing the rows do not come again"]
    landed = {file.name for file in landed_files(lake, source)}
    gone = len(done.names - landed)
    if not gone:
        return ["all files that were taken are still in landing"]
    return [f"{counted(gone, 'file')} of those taken are not in landing any more: DATA IS LOST"]


def lying_aside(lake: Lake) -> list[str]:
    """The folders, below the lake's, of what was set aside and is still there."""
    root = lake.path_in_filesystem(f"{lake.root}/set_aside")
    found = lake.filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
    return sorted(f"set_aside/{info.base_name}" for info in found)


def apply_set_aside(lake: Lake, plan: SetAside) -> None:
    """Move it, while no job of any stream or source runs. LeaseTakenError when one does."""
    with ExitStack() as leases:
        for name in _all_leases():
            leases.enter_context(hold_lease(lake, name))
        for name in plan.names:
            _move(lake, name, f"{plan.target}/{name}")


def _all_leases() -> list[str]:
    sources = [f"ingest-{source.name}" for source in all_sources()]
    return sources + [f"stream-{stream.name}" for stream in all_streams()]


def _move(lake: Lake, name: str, target: str) -> None:
    here, there = (lake.path_in_filesystem(f"{lake.root}/{each}") for each in (name, target))
    files = lake.filesystem
    files.create_dir(str(PurePosixPath(there).parent), recursive=True)
    if isinstance(files, fs.LocalFileSystem):
        files.move(here, there)
        return
    # An object store has no folders to rename.
    fs.copy_files(here, there, source_filesystem=files, destination_filesystem=files)
    is_folder = files.get_file_info(here).type == fs.FileType.Directory
    (files.delete_dir if is_folder else files.delete_file)(here)
