"""A recovery drill: a stream is restored on a copy, and must come to the rows that it has.

    begin_drill     copies the stream's part of the lake to `drills/<stream>` in it, damages the
                    copy's checkpoint, and strikes off the savepoints that would leave no rows to replay
    the restore     is the documented one: the job of `./stateful reseed NAME --until UNTIL --apply`,
                    with the copy as its lake
    finish_drill    compares the copy's table with what was copied of it, records the drill in
                    `ops/runs`, and deletes the copy

Of the lake itself only that row is written: all else works in a lake of its own, the copy.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from pyarrow import fs

from include.care.check_checkpoint import check_checkpoint
from include.care.last_drill import DRILL
from include.checkpoint.checkpoint_files import list_checkpoint
from include.coverage.segments import BEGINNING_US
from include.coverage.table_coverage import trusted_coverage
from include.fold.instants import instant_of, micros_of
from include.lake.generations import read_generations
from include.lake.lease import is_local, lease_holder
from include.lake.open_delta import delta_table
from include.lake.ops import read_ops
from include.lake.paths import Lake, LakeError
from include.landing.erasures import open_erasure
from include.plans.plan_recompute import rows_emitted
from include.plans.stream_identity import stream_identity
from include.savepoints.bronze_pin import pin_bronze
from include.savepoints.choose_base import clean_savepoints
from include.savepoints.manifest import Savepoint, mark_deleted, savepoints_of
from include.settings import Stream
from include.stream_definition import load_definition

NOTE = "drill.json"


class NoDrillError(LakeError):
    """There is nothing yet, or nothing right, that a drill could restore and compare."""


@dataclass(frozen=True)
class Drill:
    """A drill that has begun; instants in microseconds."""

    stream: str
    began_us: int
    until_us: int  # what is restored, and compared, is before it
    savepoint_id: str  # the newest that the copy has
    table_version: int  # of the copied table
    dag_run_id: str | None = None  # by which it began; None: by hand
    copied_runs: Sequence[str] = ()  # of the stream, which the copy had before it was restored

    @property
    def arguments(self) -> list[str]:
        """Of the job reseed_stream, besides its stream and lake."""
        return ["--until", instant_of(self.until_us).isoformat()]

    def text(self) -> str:
        """For people."""
        return (
            f"drill of {self.stream}: its copy has lost its checkpoint's newest state, and is restored "
            f"from savepoint {self.savepoint_id} until {instant_of(self.until_us)}"
        )


def begin_drill(lake: Lake, stream: Stream, dag_run_id: str | None = None) -> Drill:
    """Copy and damage. NoDrillError when nothing can be compared, LakeError when a job writes."""
    _delete_older(lake, stream)
    began_us = micros_of(datetime.now(UTC))
    before = _written_by(lake, stream)
    until_us = _right_until_us(lake, stream)
    savepoint, newer = _choose_savepoint(lake, stream, until_us)
    with ExitStack() as unless_begun:
        unless_begun.callback(end_drill, lake, stream)
        copy = _copied_lake(lake, stream)
        if _written_by(lake, stream) != before:
            raise LakeError(f"a job wrote to {stream.name} while it was copied: begin again")
        mark_deleted(copy, [one.savepoint_id for one in newer])
        _damage(copy, stream)
        version = delta_table(copy.table(stream.name)).version()
        base = savepoint.savepoint_id
        runs, _ = before
        drill = Drill(stream.name, began_us, until_us, base, version, dag_run_id, sorted(runs))
        with copy.filesystem.open_output_stream(_note(copy)) as file:
            file.write(json.dumps(asdict(drill)).encode())
        unless_begun.pop_all()
    return drill


def begun_drill(lake: Lake, stream: Stream) -> Drill:
    """The drill that has begun, as its copy says; LakeError when there is none."""
    copy = drill_lake(lake, stream)
    try:
        with copy.filesystem.open_input_stream(_note(copy)) as file:
            return Drill(**json.loads(file.read()))
    except FileNotFoundError as error:
        raise LakeError(
            f"no drill of {stream.name} has begun: `./stateful drill {stream.name}`"
        ) from error


def _delete_older(lake: Lake, stream: Stream) -> None:
    """Before it is known whether this drill can begin: nobody is to take that copy for its own."""
    if holder := lease_holder(drill_lake(lake, stream), f"stream-{stream.name}"):
        raise LakeError(f"another drill of {stream.name} restores its copy just now: {holder}")
    end_drill(lake, stream)


def end_drill(lake: Lake, stream: Stream) -> None:
    """Delete the copy, if there is one."""
    path = lake.path_in_filesystem(lake.drill(stream.name))
    if lake.filesystem.get_file_info(path).type != fs.FileType.NotFound:
        lake.filesystem.delete_dir(path)


def drill_lake(lake: Lake, stream: Stream) -> Lake:
    """The lake that a drill of `stream` works in."""
    return Lake(lake.drill(stream.name))


def _note(copy: Lake) -> str:
    return copy.path_in_filesystem(f"{copy.root}/{NOTE}")


def _written_by(lake: Lake, stream: Stream) -> tuple[set[str], ...]:
    """The runs that have written what is copied: it is of one time if none came meanwhile."""
    if open_erasure(lake, stream.source) is not None:
        raise LakeError(
            f"a key of {stream.source} is being erased, and is not to be copied meanwhile"
        )
    names = (f"stream-{stream.name}", f"ingest-{stream.source}")
    for name in names:
        if holder := lease_holder(lake, name):
            raise LakeError(f"a job works on {name} ({holder}): begin the drill when it has ended")
    rows = (
        read_ops(lake, "runs", {"subject": subject}, ("run_id", "job")).to_pylist()
        for subject in (stream.name, stream.source)
    )
    return tuple({row["run_id"] for row in found if row["job"] != DRILL} for found in rows)


def _right_until_us(lake: Lake, stream: Stream) -> int:
    """Before which instant the table is right: only there a restore must come to the same."""
    coverage = trusted_coverage(lake, stream, stream_identity(lake, stream))
    wrong_us = coverage.first_wrong_us
    is_update = load_definition(stream).fold.output_mode == "update"  # it shows one state
    if (
        coverage.until_us is None
        or wrong_us == BEGINNING_US
        or (is_update and wrong_us is not None)
    ):
        raise NoDrillError(
            f"{stream.name} has nothing right that a drill could compare, as `./stateful coverage "
            f"{stream.name}` says"
        )
    return coverage.until_us if wrong_us is None else wrong_us


def _choose_savepoint(
    lake: Lake, stream: Stream, until_us: int
) -> tuple[Savepoint, list[Savepoint]]:
    """The newest clean one with rows of the table between it and `until_us`, and the newer ones."""
    known, identity = savepoints_of(lake, stream.name), stream_identity(lake, stream)
    clean = clean_savepoints(known, identity, pin_bronze(lake, stream.source)) if known else []
    for one in reversed(clean):
        if one.until_us < until_us and _has_rows(lake, stream, one.until_us, until_us):
            return one, [other for other in known if other.until_us > one.until_us]
    raise NoDrillError(
        f"{stream.name} has no clean savepoint with rows of its table after it: nothing to replay"
    )


def _has_rows(lake: Lake, stream: Stream, from_us: int, until_us: int) -> bool:
    if load_definition(stream).fold.output_mode == "update":
        return True  # it is written anew, and compared, as a whole
    return any(rows_emitted(lake, stream, [instant_of(from_us), instant_of(until_us)]))


def _parts(lake: Lake, stream: Stream) -> list[str]:
    """What a reseed of `stream` reads or writes, in an order in which none is older than the next."""
    generation = read_generations(lake, stream.name).number
    savepoints = {f"{lake.root}/{one.path}" for one in savepoints_of(lake, stream.name)}
    return [
        f"{lake.root}/ops",
        lake.checkpoint(stream.name, generation),
        lake.table(stream.name),
        lake.rejected(stream.name),
        *sorted(savepoints),
        lake.initial_state(stream.name),
        lake.initial_state_file(stream.name),
        lake.bronze(stream.source),
    ]


def _copied_lake(lake: Lake, stream: Stream) -> Lake:
    """The copy. No byte of it goes through here where the store copies by itself."""
    copy, files = drill_lake(lake, stream), lake.filesystem
    here, there = lake.path_in_filesystem(lake.root), copy.path_in_filesystem(copy.root)
    for part in _parts(lake, stream):
        for path in _files_below(files, lake.path_in_filesystem(part)):
            target = there + path.removeprefix(here)
            if is_local(lake):  # elsewhere a file needs no folder
                files.create_dir(target.rpartition("/")[0], recursive=True)
            files.copy_file(path, target)
    return copy


def _files_below(files: fs.FileSystem, path: str) -> Iterator[str]:
    """Logs of tables first: what they name was written before. Without their hints of where to
    begin, which may be newer than what was listed."""
    info = files.get_file_info(path)
    if info.type == fs.FileType.File:
        yield path
    if info.type != fs.FileType.Directory:
        return
    infos = files.get_file_info(fs.FileSelector(path, recursive=True))
    found = [info.path for info in infos if info.type == fs.FileType.File]
    kept = [path for path in found if not path.endswith("_last_checkpoint")]
    yield from sorted(kept, key=lambda path: ("/_delta_log/" not in path, path))


def _damage(copy: Lake, stream: Stream) -> None:
    """Lose the newest version of each state store; LakeError when a check does not see it."""
    checkpoint = copy.checkpoint(stream.name, read_generations(copy, stream.name).number)
    files = [file for file in list_checkpoint(copy, checkpoint) if file.name.part == "state"]
    newest = max((file.name.number for file in files if file.name.number is not None), default=None)
    if newest is None:
        raise NoDrillError(f"{checkpoint} has no state that could be lost")
    for file in files:
        if file.name.number == newest:
            copy.filesystem.delete_file(copy.path_in_filesystem(f"{checkpoint}/{file.path}"))
    found = {finding.finding for finding in check_checkpoint(copy, stream).findings}
    if "missing_files" not in found:
        raise LakeError(
            f"version {newest} of the state in {checkpoint} was deleted, and no check sees it"
        )
