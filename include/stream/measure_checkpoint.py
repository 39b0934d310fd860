"""How large a stream's checkpoint is, part by part, and whether its next batch can start with it.

It reads the names and sizes of all files from one listing, and of the snapshots that a start loads the few
kilobytes that say which SST files they need. It changes nothing.

    metadata, offsets/<batch>, commits/<batch>, sources/...
    state/<operator>/_metadata, _stateSchema
    state/<operator>/<partition>/{<version>.zip, <version>.changelog, SSTs/..., logs/...}

A batch N turns version N of the state into version N + 1. On a local disk Hadoop keeps a checksum
`.<name>.crc` beside a file, which counts as a part of it.
"""

import io
import json
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal, NamedTuple

from pyarrow import fs

from include.lake.delta_log import is_of_machine
from include.lake.figures import Measured
from include.lake.paths import Lake

CHECKSUM = re.compile(r"(.*/|)\.([^/]+)\.crc")
PARTITION = re.compile(r"state/\d+/\d+(?=/)")
VERSION = re.compile(r"(state/\d+/\d+)/(\d+)\.(zip|changelog)")
BATCH = re.compile(r"(offsets|commits)/(\d+)")
# `metadata` is the older format, of operators whose state never gets another schema.
OPERATOR = re.compile(r"state/(\d+)/_metadata/(?:v2/(\d+)|metadata)")
# An object store answers a request in tens of milliseconds, however small the file.
READERS = 8
NOT_UNDERSTOOD = (AttributeError, IndexError, KeyError, TypeError, ValueError)
UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, *NOT_UNDERSTOOD)

Verdict = Literal["ok", "of_other_times", "unreadable"]


class UnreadableError(Exception):
    """A file of a checkpoint is not what Spark writes, or gone."""


class Size(NamedTuple):
    """Of all files of a part."""

    bytes: int
    files: int


@dataclass(frozen=True, kw_only=True)
class CheckpointSize:
    """A checkpoint as it was when it was listed. Without a file it has no parts."""

    stream: str
    generation: int
    checkpoint: str
    measured_at: datetime
    planned: int | None = None  # the newest batch that its query has begun
    committed: int | None = None  # ... and finished
    # By the folder: offsets, commits, ...; state/0/3 is a state partition, state what is beside these.
    parts: Mapping[str, Size]
    replay_versions: int = 0  # the most change logs that a partition replays at a start
    verdict: Verdict = "ok"
    why: str | None = None  # the next batch cannot start with it, if so

    @property
    def measured(self) -> Measured:
        """What is recorded of it."""
        bytes_of = {name: part.bytes for name, part in self.parts.items()}
        files = sum(part.files for part in self.parts.values())
        return Measured(self.measured_at, bytes_of, files, self.replay_versions)

    @property
    def uncommitted(self) -> int:
        """Batches that were begun, and not finished: Spark repeats the last of them."""
        planned, committed = (-1 if n is None else n for n in (self.planned, self.committed))
        return max(planned - committed, 0)


def measure_checkpoint(
    lake: Lake, stream: str, generation: int, written: int | None = None
) -> CheckpointSize:
    """The size of the checkpoint of `stream`'s `generation`, and the verdict on it.

    `written`: the newest of its batches that the stream's table has.
    """
    checkpoint, measured_at = lake.checkpoint(stream, generation), datetime.now(UTC)
    files: Mapping[str, int] = {}
    planned = committed = why = None
    replayed = 0
    try:
        files = _list(lake, checkpoint)
        planned, committed = (_newest(files, log) for log in ("offsets", "commits"))
        _refuse_logs(lake, checkpoint, files, planned, committed)
        replayed = _replayed(lake, checkpoint, files, _next_version(planned, committed))
    except UnreadableError as error:
        why = f"{checkpoint} cannot be read, and the next run fails: {error}"
    verdict: Verdict = "ok" if why is None else "unreadable"
    if written is not None and (planned is None or planned < written):
        ends = "is missing" if planned is None else f"ends at batch {planned}"
        why = f"{checkpoint} {ends}, but the table has batch {written} of it: what the stream reads next would be lost"
        verdict = "of_other_times"
    return CheckpointSize(
        stream=stream,
        generation=generation,
        checkpoint=checkpoint,
        measured_at=measured_at,
        planned=planned,
        committed=committed,
        parts=_parts(files),
        replay_versions=replayed,
        verdict=verdict,
        why=why,
    )


def _list(lake: Lake, checkpoint: str) -> dict[str, int]:
    """The bytes of all files, by their paths below the checkpoint; none when there is no such folder."""
    root = lake.path_in_filesystem(checkpoint)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    try:
        found = lake.filesystem.get_file_info(selector)
    except (OSError, UnicodeDecodeError) as error:
        if is_of_machine(error):
            raise
        raise UnreadableError(f"it cannot be listed ({error})") from error
    files = (info for info in found if info.type != fs.FileType.Directory)
    return {info.path[len(root) + 1 :]: info.size or 0 for info in files}


def _parts(files: Mapping[str, int]) -> dict[str, Size]:
    by_part: dict[str, list[int]] = defaultdict(list)
    for path, size in sorted(files.items()):
        by_part[_part(path)].append(size)
    return {part: Size(sum(sizes), len(sizes)) for part, sizes in by_part.items()}


def _part(path: str) -> str:
    if partition := PARTITION.match(path):
        return partition[0]
    return CHECKSUM.sub(r"\1\2", path).partition("/")[0]


def _newest(files: Mapping[str, int], log: str) -> int | None:
    """The newest batch in a log."""
    found = (BATCH.fullmatch(path) for path in files)
    return max((int(each[2]) for each in found if each and each[1] == log), default=None)


def _next_version(planned: int | None, committed: int | None) -> int:
    """The version of the state that the next batch loads: its own number."""
    if planned is None:
        return 0
    return planned if committed is None or committed < planned else planned + 1


def _refuse_logs(
    lake: Lake,
    checkpoint: str,
    files: Mapping[str, int],
    planned: int | None,
    committed: int | None,
) -> None:
    """UnreadableError where a file is not as it should be that Spark reads before it goes on."""
    for path in _needed_logs(files, planned, committed):
        if path not in files:
            raise UnreadableError(f"{path} is missing")
        if not _is_whole_log(lake.read(f"{checkpoint}/{path}"), path):
            raise UnreadableError(f"{path} is not what Spark writes: cut off, or damaged")


def _needed_logs(
    files: Mapping[str, int], planned: int | None, committed: int | None
) -> Iterator[str]:
    if planned is None and committed is None:
        if any(path.startswith("state/") and not CHECKSUM.fullmatch(path) for path in files):
            yield "offsets/0"  # Spark starts no query on state of no batch
        return
    yield "metadata"
    if planned is not None:
        yield from (f"offsets/{batch}" for batch in (planned - 1, planned) if batch >= 0)
    if committed is not None:
        yield f"commits/{committed}"
        if planned is None or planned < committed:
            yield f"offsets/{committed}"


def _is_whole_log(content: bytes, path: str) -> bool:
    """Whether it is a version, which `metadata` has not, and lines of JSON, or `-` for a source
    without an offset."""
    try:
        lines = content.decode().split("\n")
        if path != "metadata" and not lines.pop(0).removeprefix("v").isdecimal():
            return False
        for line in lines:
            if line != "-":
                json.loads(line)
    except ValueError:
        return False
    return bool(lines)


def _replayed(lake: Lake, checkpoint: str, files: Mapping[str, int], start: int) -> int:
    """The most change logs that a partition replays to load version `start` of its state.

    UnreadableError where one cannot be loaded.
    """
    partitions = _partitions(lake, checkpoint, files)
    if not partitions and start:
        raise UnreadableError("it has no state")
    with ThreadPoolExecutor(READERS) as readers:
        base_of = partial(_base, lake, checkpoint, files, start)
        bases = dict(zip(partitions, readers.map(base_of, partitions), strict=True))
    for partition, base in bases.items():
        if base is None:
            raise UnreadableError(f"files of {partition} before version {start} are missing")
    return max((start - base for base in bases.values() if base is not None), default=0)


def _partitions(lake: Lake, checkpoint: str, files: Mapping[str, int]) -> list[str]:
    """Those of the state, as each operator's newest metadata says; UnreadableError."""
    newest: dict[int, tuple[int, str]] = {}
    for path in files:
        if found := OPERATOR.fullmatch(path):
            operator, batch = int(found[1]), int(found[2] or 0)
            newest[operator] = max(newest.get(operator, (-1, "")), (batch, path))
    partitions: list[str] = []
    for operator, (_, path) in sorted(newest.items()):
        try:
            # Line 1 is the format's version.
            told = json.loads(lake.read(f"{checkpoint}/{path}").decode().split("\n", 1)[1])
            count = max(int(store["numPartitions"]) for store in told["stateStoreInfo"])
        except (
            FileNotFoundError
        ) as error:  # since it was listed. Any other says nothing of the file
            raise UnreadableError(f"{path} is gone") from error
        except NOT_UNDERSTOOD as error:
            raise UnreadableError(f"{path} is not what Spark writes ({error!r})") from error
        partitions += [f"state/{operator}/{number}" for number in range(count)]
    return partitions


def _base(
    lake: Lake, checkpoint: str, files: Mapping[str, int], start: int, partition: str
) -> int | None:
    """The snapshot that a start begins with, and replays the change logs after it; 0: the empty state.

    One that cannot be loaded is none: Spark begins with the one before. None where nothing leads to `start`.
    """
    found = (VERSION.fullmatch(path) for path in files if path.startswith(f"{partition}/"))
    snapshots = {int(each[2]) for each in found if each and each[3] == "zip"}
    for base in sorted({0, *(version for version in snapshots if version <= start)}, reverse=True):
        # Of a batch that changed nothing, too, a change log has bytes: none is a write cut off.
        logs = (f"{partition}/{version}.changelog" for version in range(base + 1, start + 1))
        if not all(map(files.get, logs)):
            return None
        if base == 0 or _is_whole_snapshot(lake, checkpoint, files, f"{partition}/{base}.zip"):
            return base
    return None


def _is_whole_snapshot(lake: Lake, checkpoint: str, files: Mapping[str, int], path: str) -> bool:
    folder = path.rpartition("/")[0]
    try:
        with zipfile.ZipFile(io.BytesIO(lake.read(f"{checkpoint}/{path}"))) as archive:
            version, _, body = archive.read("metadata").partition(b"\n")
        told = json.loads(body)
        needed = {f"SSTs/{sst['dfsSstFileName']}": sst["sizeBytes"] for sst in told["sstFiles"]}
        for log in told.get("logFiles") or ():
            needed[f"logs/{log['dfsLogFileName']}"] = log["sizeBytes"]
    except UNREADABLE as error:
        if is_of_machine(error):
            raise
        return False
    has_all = all(files.get(f"{folder}/{name}") == size for name, size in needed.items())
    return version == b"v1" and has_all
