"""A stream's checkpoint: its newest batches, its size, and the verdict if a run can start with it.

    metadata, offsets/<batch>, commits/<batch>, sources/...
    state/0/_metadata/v2/<batch>
    state/0/<partition>/{<version>.zip, <version>.changelog, SSTs/..., logs/...}

A batch N turns version N of the state into version N + 1. On a local disk Hadoop writes a checksum
file `.<name>.crc` for each, which counts as a part of it.
"""

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from pyarrow import fs

from include.lake.delta_log import is_of_machine
from include.lake.errors import damaged
from include.lake.generations import Generations
from include.lake.ops import Measured
from include.lake.paths import Lake


def offsets_hash(lake: Lake, checkpoint: str, batch_id: int) -> str | None:
    """A hash of a batch's `offsets/N`, which no other run writes alike; None when it is not there."""
    try:
        offsets = lake.read(f"{checkpoint}/offsets/{batch_id}")
    except FileNotFoundError:
        return None
    return hashlib.sha256(offsets).hexdigest()[:16]


def newest_begun(lake: Lake, checkpoint: str) -> int | None:
    """The newest batch that a query on `checkpoint` has begun; None before the first."""
    return _newest_batch(lake, f"{checkpoint}/offsets")


def newest_committed(lake: Lake, checkpoint: str) -> int | None:
    """The newest batch that a query on `checkpoint` has finished; None before the first."""
    return _newest_batch(lake, f"{checkpoint}/commits")


def _newest_batch(lake: Lake, log: str) -> int | None:
    selector = fs.FileSelector(lake.path_in_filesystem(log), allow_not_found=True)
    names = (info.base_name for info in lake.filesystem.get_file_info(selector))
    return max((int(name) for name in names if name.isdecimal()), default=None)


@dataclass(frozen=True)
class CommittedBatch:
    """The newest batch that a query has finished."""

    generation: int
    checkpoint: str
    batch_id: int
    watermark_ms: int | None  # by which every bucket is complete; None: no row yet
    next_watermark_ms: int | None  # by which it will be after the next batch


def committed_batch(lake: Lake, generations: Generations) -> CommittedBatch:
    """Return the newest committed batch of a stream; LakeError when there is none."""
    generation = generations.number
    checkpoint = lake.checkpoint(generations.stream, generation)
    batch_id = newest_committed(lake, checkpoint)
    if batch_id is None:
        raise generations.without_state()
    begun = batch_watermark_ms(lake, checkpoint, batch_id)
    following = _next_watermark_ms(lake, checkpoint, batch_id)
    return CommittedBatch(generation, checkpoint, batch_id, begun, following)


def check_partitions(lake: Lake, batch: CommittedBatch, partitions: int) -> None:
    """Raise LakeError when a state partition is gone: Spark would silently read the others."""
    for number in range(partitions):
        path = f"{batch.checkpoint}/state/0/{number}"
        found = lake.filesystem.get_file_info(lake.path_in_filesystem(path))
        if found.type == fs.FileType.NotFound:
            raise damaged(path, f"{path} is missing")


def is_complete(lake: Lake, checkpoint: str) -> bool:
    """True if the newest committed batch leaves no later watermark to the next one, or there is none.

    A run that is killed before its batch without data leaves one. Raises LakeError when the logs
    do not name it, which Spark would take for 0.
    """
    committed = newest_committed(lake, checkpoint)
    if committed is None:
        return True
    next_ms = _next_watermark_ms(lake, checkpoint, committed)
    return (next_ms or 0) <= (batch_watermark_ms(lake, checkpoint, committed) or 0)


def batch_watermark_ms(lake: Lake, checkpoint: str, batch_id: int) -> int | None:
    """The watermark by which every bucket is complete once a batch is committed."""
    return _watermark_ms(lake, f"{checkpoint}/offsets/{batch_id}", "batchWatermarkMs")


def _next_watermark_ms(lake: Lake, checkpoint: str, batch_id: int) -> int | None:
    return _watermark_ms(lake, f"{checkpoint}/commits/{batch_id}", "nextBatchWatermarkMs")


def _watermark_ms(lake: Lake, path: str, name: str) -> int | None:
    """The watermark in line 2 of a batch's log; LakeError when it is not there."""
    try:
        watermark_ms = int(json.loads(lake.read(path).decode().splitlines()[1])[name])
    except FileNotFoundError as error:
        raise damaged(path, f"{path} is missing, though its batch is committed") from error
    except (IndexError, KeyError, TypeError, ValueError) as error:  # of no text, too
        raise damaged(path, f"{path} is damaged ({error!r})") from error
    return watermark_ms if watermark_ms > 0 else None  # Spark says 0 for "none yet"


@dataclass(frozen=True)
class BronzePosition:
    """The first version of bronze of which something may be unread."""

    table_id: str
    version: int


def read_position(lake: Lake, offsets: str) -> BronzePosition:
    """The position that a batch reads up to, in line 3 of its plan; LakeError when it is not there."""
    try:
        delta = json.loads(lake.read(offsets).decode().splitlines()[2])
        # Having read all of version V, Delta writes V + 1 and an index below every file.
        return BronzePosition(delta["reservoirId"], delta["reservoirVersion"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{offsets} is not the offset of a Delta source ({error!r})"
        raise damaged(offsets, what) from error


PARTITION = re.compile(r"state/0/\d+(?=/)")
VERSION = re.compile(r"(\d+)\.(zip|changelog)")
BATCH = re.compile(r"(offsets|commits)/(\d+)")
METADATA = re.compile(r"state/0/_metadata/v2/(\d+)")
# An object store answers a request in tens of milliseconds, however small the file.
READERS = 8
NOT_UNDERSTOOD = (AttributeError, IndexError, KeyError, TypeError, ValueError)
UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, *NOT_UNDERSTOOD)
Files = Mapping[str, int]  # the size in bytes of each file, by its path below the checkpoint

Verdict = Literal["ok", "of_other_times", "unreadable"]


class UnreadableError(Exception):
    """A file of a checkpoint is gone, or is not what Spark writes."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSize:
    """A checkpoint as it was when it was listed."""

    stream: str
    checkpoint: str
    measured: Measured
    begun: int | None  # the newest batch that its query has begun
    committed: int | None  # ... and finished
    verdict: Verdict
    why: str | None  # the reason of a verdict that is not "ok"

    @property
    def uncommitted(self) -> int:
        """The number of batches that were begun and not finished: Spark repeats the last of them."""
        begun, committed = (-1 if n is None else n for n in (self.begun, self.committed))
        return max(begun - committed, 0)


def measure_checkpoint(
    lake: Lake, stream: str, generation: int, written: int | None = None
) -> CheckpointSize:
    """Measure a checkpoint and judge it; `written`: its newest batch in the table."""
    checkpoint, measured_at = lake.checkpoint(stream, generation), datetime.now(UTC)
    files: Files = {}
    begun = committed = why = None
    replayed = 0
    try:
        files = _list(lake, checkpoint)
        begun, committed = (_newest(files, log) for log in ("offsets", "commits"))
        _refuse_logs(lake, checkpoint, files, begun, committed)
        replayed = _replayed(lake, checkpoint, files, _next_version(begun, committed))
    except UnreadableError as error:
        why = f"{checkpoint} cannot be read, and the next run fails: {error}"
    verdict: Verdict = "ok" if why is None else "unreadable"
    if written is not None and (begun is None or begun < written):
        ends = "is missing" if begun is None else f"ends at batch {begun}"
        why = f"{checkpoint} {ends}, but the table has batch {written} of it: what the stream reads next would be lost"
        verdict = "of_other_times"
    return CheckpointSize(
        stream=stream,
        checkpoint=checkpoint,
        measured=Measured(measured_at, _bytes_of_parts(files), len(files), replayed),
        begun=begun,
        committed=committed,
        verdict=verdict,
        why=why,
    )


def _list(lake: Lake, checkpoint: str) -> Files:
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


def _bytes_of_parts(files: Files) -> dict[str, int]:
    """Bytes by folder (offsets, ...); `state/0/3` is a state partition, `state` all beside these."""
    sizes = Counter[str]()
    for path, size in sorted(files.items()):
        partition = PARTITION.match(path)
        folder = path.partition("/")[0].removeprefix(".").removesuffix(".crc")
        sizes[partition[0] if partition else folder] += size
    return dict(sizes)


def _newest(files: Files, log: str) -> int | None:
    """The newest batch in a log, offsets or commits; None without any."""
    found = (BATCH.fullmatch(path) for path in files)
    return max((int(each[2]) for each in found if each and each[1] == log), default=None)


def _next_version(begun: int | None, committed: int | None) -> int:
    """The version of the state that the next batch loads: its own number."""
    if begun is None:
        return 0
    return begun if committed is None or committed < begun else begun + 1


def _refuse_logs(
    lake: Lake, checkpoint: str, files: Files, begun: int | None, committed: int | None
) -> None:
    """Raise UnreadableError for a log that Spark reads before it goes on and that is missing or damaged."""
    for path in _needed_logs(files, begun, committed):
        if path not in files:
            raise UnreadableError(f"{path} is missing")
        if not _is_whole_log(lake.read(f"{checkpoint}/{path}"), path):
            raise UnreadableError(f"{path} is not what Spark writes: cut off, or damaged")


def _needed_logs(files: Files, begun: int | None, committed: int | None) -> Iterator[str]:
    if begun is None and committed is None:
        if any(path.startswith("state/") and not path.endswith(".crc") for path in files):
            yield "offsets/0"  # Spark starts no query on state of no batch
        return
    yield "metadata"
    needed = {committed} if begun is None else {begun - 1, begun, committed}
    yield from (f"offsets/{batch}" for batch in needed if batch is not None and batch >= 0)
    if committed is not None:
        yield f"commits/{committed}"


def _is_whole_log(content: bytes, path: str) -> bool:
    """True if it has a version, except `metadata`, and then lines of JSON, or `-` for no offset."""
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


def _replayed(lake: Lake, checkpoint: str, files: Files, start: int) -> int:
    """The most change logs that a partition replays to load version `start`; UnreadableError."""
    partitions = [f"state/0/{number}" for number in range(_partitions(lake, checkpoint, files))]
    if not partitions and start:
        raise UnreadableError("it has no state")
    with ThreadPoolExecutor(READERS) as readers:
        snapshot_of = partial(_snapshot, lake, checkpoint, files, start)
        snapshots = list(readers.map(snapshot_of, partitions))
    return max((start - snapshot for snapshot in snapshots), default=0)


def _partitions(lake: Lake, checkpoint: str, files: Files) -> int:
    """The number of state partitions, as the newest metadata says; UnreadableError."""
    batches = [int(found[1]) for path in files if (found := METADATA.fullmatch(path))]
    if not batches:
        return 0
    path = f"state/0/_metadata/v2/{max(batches)}"
    try:
        # Line 1 is the format's version.
        metadata: Any = json.loads(lake.read(f"{checkpoint}/{path}").decode().split("\n", 1)[1])
        return max(int(store["numPartitions"]) for store in metadata["stateStoreInfo"])
    except FileNotFoundError as error:  # since it was listed
        raise UnreadableError(f"{path} is gone") from error
    except NOT_UNDERSTOOD as error:
        raise UnreadableError(f"{path} is not what Spark writes ({error!r})") from error


def _snapshot(lake: Lake, checkpoint: str, files: Files, start: int, partition: str) -> int:
    """The version of the newest whole snapshot with change logs up to `start`; 0: the empty state.

    Spark goes back to the one before when one cannot be loaded. UnreadableError when there is none.
    """
    inside = (path.removeprefix(f"{partition}/") for path in files if path.startswith(partition))
    found = (VERSION.fullmatch(name) for name in inside)
    known = {int(each[1]) for each in found if each and each[2] == "zip"}
    for version in sorted({0, *(each for each in known if each <= start)}, reverse=True):
        # A change log without bytes is a write cut off: it has some also of a batch without changes.
        logs = (f"{partition}/{number}.changelog" for number in range(version + 1, start + 1))
        if not all(map(files.get, logs)):
            break
        path = f"{partition}/{version}.zip"
        if version == 0 or _is_whole_snapshot(lake, checkpoint, files, path):
            return version
    raise UnreadableError(f"files of {partition} before version {start} are missing")


def _is_whole_snapshot(lake: Lake, checkpoint: str, files: Files, path: str) -> bool:
    folder = path.rpartition("/")[0]
    try:
        with zipfile.ZipFile(io.BytesIO(lake.read(f"{checkpoint}/{path}"))) as archive:
            version, _, body = archive.read("metadata").partition(b"\n")
        metadata = json.loads(body)
        needed = {f"SSTs/{sst['dfsSstFileName']}": sst["sizeBytes"] for sst in metadata["sstFiles"]}
        for log in metadata.get("logFiles") or ():
            needed[f"logs/{log['dfsLogFileName']}"] = log["sizeBytes"]
    except UNREADABLE as error:
        if is_of_machine(error):
            raise
        return False
    has_all = all(files.get(f"{folder}/{name}") == size for name, size in needed.items())
    return version == b"v1" and has_all
