"""Put a table that cannot be gone on from out of the way, for it to be made anew: `./stateful set-aside`.

Nothing is deleted. The tables that a source is ingested into stand and fall together, with the ingest log.
"""

import re
from contextlib import ExitStack
from dataclasses import dataclass

from pyarrow import fs

from include.lake.aside import is_there, move_aside
from include.lake.how_to_mend import OF_SOURCE
from include.lake.lease import hold_lease
from include.lake.paths import Lake, LakeError
from include.landing.amendments import amendments_of
from include.landing.ingest_log import read_done
from include.landing.landing_folder import landed_files
from include.registry import all_sources, all_streams, source_names, streams_of
from include.text_table import counted

TABLE = re.compile(r"(bronze|quarantine|ingest_log|tables|dead_letters)/([^/]+)")


@dataclass(frozen=True)
class SetAside:
    """What is moved, below the lake, and what follows of it."""

    names: tuple[str, ...]
    follows: tuple[str, ...]

    def text(self) -> str:
        return "\n".join([f"moves {', '.join(self.names)} into set_aside/", *self.follows])


def plan_set_aside(lake: Lake, table: str) -> SetAside:
    """LakeError when it is no table of a source or stream, or is not there."""
    table = table.strip("/")
    found = TABLE.fullmatch(table)
    if found is None or found[2] == "..":
        raise LakeError(
            f"{table!r} is not to be set aside: name a table, such as bronze/signals",
            code="wrong_argument",
            subject=table,
        )
    kind, subject = found.groups()
    is_of_source = kind in OF_SOURCE and subject in source_names()
    if is_of_source and _is_erasing(lake, subject):
        raise LakeError(
            f"an erasure of a key of {subject} was begun and is not finished, and needs bronze/{subject}: "
            "finish it first",
            code="unfinished_erasure",
            subject=subject,
        )
    wanted = [f"{part}/{subject}" for part in OF_SOURCE] if is_of_source else [table]
    names = tuple(name for name in wanted if is_there(lake, name))
    if not names:
        raise LakeError(
            f"{lake.root}/{table} is not there: nothing is to be set aside",
            code="nothing_there",
            subject=table,
        )
    if is_of_source:
        return SetAside(names, tuple(_follows_of_source(lake, subject)))
    option = " --recompute" if kind == "dead_letters" else ""
    anew = f"then all its rows are made anew by `./stateful reseed {subject}{option} --apply`"
    return SetAside(names, (anew,))


def _is_erasing(lake: Lake, source: str) -> bool:
    try:
        return amendments_of(lake, source).open_erasure is not None
    except LakeError:
        return False  # of an ingest log that cannot be read nothing is left to go on with


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
    return any(is_there(lake, f"{kind}/{stream}") for kind in ("checkpoints", "tables"))


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
    sources = [f"ingest-{source.name}" for source in all_sources()]
    with ExitStack() as leases:
        for name in (*sources, *(f"stream-{stream.name}" for stream in all_streams())):
            leases.enter_context(hold_lease(lake, name))
        move_aside(lake, plan.names)
