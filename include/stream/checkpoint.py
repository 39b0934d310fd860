"""A stream's checkpoint: its newest batches, its size, and whether a run can start with it.

    metadata, offsets/<batch>, commits/<batch>, sources/...
    state/0/_metadata/v2/<batch>
    state/0/<partition>/{<version>.zip, <version>.changelog, SSTs/..., logs/...}

A batch N turns version N of the state into version N + 1. On a local disk Hadoop keeps a checksum
`.<name>.crc` beside a file, which counts as a part of it.
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


def plan_hash(lake: Lake, checkpoint: str, batch_id: int) -> str | None:
    """A hash of the plan of a batch, which says when it was made; None when it is not there."""
    try:
        plan = lake.read(f"{checkpoint}/offsets/{batch_id}")
    except FileNotFoundError:
        return None
    return hashlib.sha256(plan).hexdigest()[:16]


def newest_planned(lake: Lake, checkpoint: str) -> int | None:
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
    # Every bucket has completed by the one, the next batch will by the other; None: no row yet.
    watermark_ms: int | None
    next_watermark_ms: int | None


def committed_batch(lake: Lake, generations: Generations) -> CommittedBatch:
    """The newest committed batch of a stream; LakeError when there is none."""
    generation = generations.number
    checkpoint = lake.checkpoint(generations.stream, generation)
    batch_id = newest_committed(lake, checkpoint)
    if batch_id is None:
        raise generations.without_state()
    begun = batch_watermark_ms(lake, checkpoint, batch_id)
    return CommittedBatch(
        generation, checkpoint, batch_id, begun, _next_watermark_ms(lake, checkpoint, batch_id)
    )


def check_partitions(lake: Lake, batch: CommittedBatch, partitions: int) -> None:
    """LakeError when a state partition is gone: Spark would read the others, and not say so."""
    for number in range(partitions):
        path = f"{batch.checkpoint}/state/0/{number}"
        found = lake.filesystem.get_file_info(lake.path_in_filesystem(path))
        if found.type == fs.FileType.NotFound:
            raise damaged(path, f"{path} is missing")


def is_complete(lake: Lake, checkpoint: str) -> bool:
    """Whether the newest committed batch left no watermark behind for the next one to settle by.

    It does when the run was killed before its batch without data. True before the first batch.
    LakeError where it does not say, which Spark would take for 0.
    """
    committed = newest_committed(lake, checkpoint)
    if committed is None:
        return True
    next_ms = _next_watermark_ms(lake, checkpoint, committed)
    return (next_ms or 0) <= (batch_watermark_ms(lake, checkpoint, committed) or 0)


def batch_watermark_ms(lake: Lake, checkpoint: str, batch_id: int) -> int | None:
    """The watermark that every bucket has completed by once a batch is committed."""
    return _watermark_ms(lake, f"{checkpoint}/offsets/{batch_id}", "batchWatermarkMs")


def _next_watermark_ms(lake: Lake, checkpoint: str, batch_id: int) -> int | None:
    return _watermark_ms(lake, f"{checkpoint}/commits/{batch_id}", "nextBatchWatermarkMs")


def _watermark_ms(lake: Lake, path: str, name: str) -> int | None:
    """By the settings of a batch, which are line 2 of its log."""
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
    """Where a batch's plan ends: line 3 of it is of the one source."""
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
Files = Mapping[str, int]  # the bytes of all files, by their paths below the checkpoint

Verdict = Literal["ok", "of_other_times", "unreadable"]


class UnreadableError(Exception):
    """A file of a checkpoint is not what Spark writes, or gone."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSize:
    """A checkpoint as it was when it was listed. Without a file it has no parts."""

    stream: str
    checkpoint: str
    measured: Measured
    planned: int | None  # the newest batch that its query has begun
    committed: int | None  # ... and finished
    verdict: Verdict
    why: str | None  # the next batch cannot start with it, if so

    @property
    def uncommitted(self) -> int:
        """Batches that were begun, and not finished: Spark repeats the last of them."""
        planned, committed = (-1 if n is None else n for n in (self.planned, self.committed))
        return max(planned - committed, 0)


def measure_checkpoint(
    lake: Lake, stream: str, generation: int, written: int | None = None
) -> CheckpointSize:
    """The size of a checkpoint, and the verdict on it; `written`: its newest batch in the table."""
    checkpoint, measured_at = lake.checkpoint(stream, generation), datetime.now(UTC)
    files: Files = {}
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
        checkpoint=checkpoint,
        measured=Measured(measured_at, _bytes_of_parts(files), len(files), replayed),
        planned=planned,
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
    """By the folder: offsets, ...; state/0/3 is a state partition, state what is beside these."""
    sizes = Counter[str]()
    for path, size in sorted(files.items()):
        partition = PARTITION.match(path)
        folder = path.partition("/")[0].removeprefix(".").removesuffix(".crc")
        sizes[partition[0] if partition else folder] += size
    return dict(sizes)


def _newest(files: Files, log: str) -> int | None:
    """The newest batch in a log."""
    found = (BATCH.fullmatch(path) for path in files)
    return max((int(each[2]) for each in found if each and each[1] == log), default=None)


def _next_version(planned: int | None, committed: int | None) -> int:
    """The version of the state that the next batch loads: its own number."""
    if planned is None:
        return 0
    return planned if committed is None or committed < planned else planned + 1


def _refuse_logs(
    lake: Lake, checkpoint: str, files: Files, planned: int | None, committed: int | None
) -> None:
    """UnreadableError where a file is not as it should be that Spark reads before it goes on."""
    for path in _needed_logs(files, planned, committed):
        if path not in files:
            raise UnreadableError(f"{path} is missing")
        if not _is_whole_log(lake.read(f"{checkpoint}/{path}"), path):
            raise UnreadableError(f"{path} is not what Spark writes: cut off, or damaged")


def _needed_logs(files: Files, planned: int | None, committed: int | None) -> Iterator[str]:
    if planned is None and committed is None:
        if any(path.startswith("state/") and not path.endswith(".crc") for path in files):
            yield "offsets/0"  # Spark starts no query on state of no batch
        return
    yield "metadata"
    begun = {committed} if planned is None else {planned - 1, planned, committed}
    yield from (f"offsets/{batch}" for batch in begun if batch is not None and batch >= 0)
    if committed is not None:
        yield f"commits/{committed}"


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


def _replayed(lake: Lake, checkpoint: str, files: Files, start: int) -> int:
    """The most change logs that a partition replays to load version `start`."""
    partitions = [f"state/0/{number}" for number in range(_partitions(lake, checkpoint, files))]
    if not partitions and start:
        raise UnreadableError("it has no state")
    with ThreadPoolExecutor(READERS) as readers:
        base_of = partial(_base, lake, checkpoint, files, start)
        bases = dict(zip(partitions, readers.map(base_of, partitions), strict=True))
    for partition, base in bases.items():
        if base is None:
            raise UnreadableError(f"files of {partition} before version {start} are missing")
    return max((start - base for base in bases.values() if base is not None), default=0)


def _partitions(lake: Lake, checkpoint: str, files: Files) -> int:
    """Those of the state, as its newest metadata says; UnreadableError."""
    batches = [int(found[1]) for path in files if (found := METADATA.fullmatch(path))]
    if not batches:
        return 0
    path = f"state/0/_metadata/v2/{max(batches)}"
    try:
        # Line 1 is the format's version.
        told: Any = json.loads(lake.read(f"{checkpoint}/{path}").decode().split("\n", 1)[1])
        return max(int(store["numPartitions"]) for store in told["stateStoreInfo"])
    except FileNotFoundError as error:  # since it was listed. Any other says nothing of the file
        raise UnreadableError(f"{path} is gone") from error
    except NOT_UNDERSTOOD as error:
        raise UnreadableError(f"{path} is not what Spark writes ({error!r})") from error


def _base(lake: Lake, checkpoint: str, files: Files, start: int, partition: str) -> int | None:
    """The newest snapshot that can be loaded, and leads to `start`; 0: the empty state.

    Spark begins with the one before, if one cannot be loaded. None where nothing leads to `start`.
    """
    inside = (path.removeprefix(f"{partition}/") for path in files if path.startswith(partition))
    found = (VERSION.fullmatch(name) for name in inside)
    snapshots = {int(each[1]) for each in found if each and each[2] == "zip"}
    for base in sorted({0, *(version for version in snapshots if version <= start)}, reverse=True):
        # Of a batch that changed nothing, too, a change log has bytes: none is a write cut off.
        logs = (f"{partition}/{version}.changelog" for version in range(base + 1, start + 1))
        if not all(map(files.get, logs)):
            return None
        if base == 0 or _is_whole_snapshot(lake, checkpoint, files, f"{partition}/{base}.zip"):
            return base
    return None


def _is_whole_snapshot(lake: Lake, checkpoint: str, files: Files, path: str) -> bool:
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
