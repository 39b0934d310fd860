"""A stream's newest committed batch: its position in bronze, its watermark.

From the checkpoint's logs alone, without a JVM.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from include.lake.errors import damaged
from include.lake.generations import Generations
from include.lake.paths import Lake


def plan_hash(lake: Lake, checkpoint: str, batch_id: int) -> str | None:
    """What tells the plan of a batch from any other of its number, as it says when it was made; None
    when it is not there."""
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
    # Every bucket has settled by the one, and the next batch will by the other. They are the
    # same when the run came to its end. None: no row has moved it yet.
    watermark_ms: int | None
    next_watermark_ms: int | None


def committed_batch(lake: Lake, generations: Generations) -> CommittedBatch:
    """The newest committed batch of a stream; a batch that has only begun does not count.

    Raises LakeError when there is none.
    """
    stream, generation = generations.stream, generations.number
    checkpoint = lake.checkpoint(stream, generation)
    batch_id = newest_committed(lake, checkpoint)
    if batch_id is None:
        raise generations.without_state()
    begun, ended = f"{checkpoint}/offsets/{batch_id}", f"{checkpoint}/commits/{batch_id}"
    return CommittedBatch(
        generation=generation,
        checkpoint=checkpoint,
        batch_id=batch_id,
        watermark_ms=_watermark_ms(_settings(lake, begun), begun, "batchWatermarkMs"),
        next_watermark_ms=_watermark_ms(_settings(lake, ended), ended, "nextBatchWatermarkMs"),
    )


def check_partitions(lake: Lake, batch: CommittedBatch, partitions: int) -> None:
    """LakeError when a state partition is gone: Spark would read the others, and not say so."""
    folders = [f"{batch.checkpoint}/state/0/{number}" for number in range(partitions)]
    found = lake.filesystem.get_file_info([lake.path_in_filesystem(path) for path in folders])
    missing = [
        path for path, info in zip(folders, found, strict=True) if info.type == fs.FileType.NotFound
    ]
    if missing:
        raise damaged(missing[0], f"{', '.join(missing)} is missing")


@dataclass(frozen=True)
class BronzePosition:
    """The first version of bronze of which something may be unread."""

    table_id: str
    version: int


def batch_watermark_ms(lake: Lake, checkpoint: str, batch_id: int) -> int | None:
    """The watermark that every bucket has settled by once a batch is committed."""
    begun = f"{checkpoint}/offsets/{batch_id}"
    return _watermark_ms(_settings(lake, begun), begun, "batchWatermarkMs")


def is_settled(lake: Lake, checkpoint: str) -> bool:
    """Whether the newest committed batch left no watermark behind for the next one to settle by.

    It does when the run was killed before its batch without data. True before the first batch.
    LakeError where it does not say, which Spark would take for 0.
    """
    committed = newest_committed(lake, checkpoint)
    if committed is None:
        return True
    ended = f"{checkpoint}/commits/{committed}"
    next_ms = _watermark_ms(_settings(lake, ended), ended, "nextBatchWatermarkMs")
    return (next_ms or 0) <= (batch_watermark_ms(lake, checkpoint, committed) or 0)


def read_position(lake: Lake, offsets: str) -> BronzePosition:
    # Line 1 is the log's version, line 2 the batch's settings, line 3 the one source.
    try:
        delta = json.loads(lake.read(offsets).decode().splitlines()[2])
        # Having read all of version V, Delta writes V + 1 and an index below every file.
        return BronzePosition(delta["reservoirId"], delta["reservoirVersion"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{offsets} is not the offset of a Delta source ({error!r})"
        raise damaged(offsets, what) from error


def _watermark_ms(settings: dict[str, Any], path: str, name: str) -> int | None:
    try:
        watermark_ms = int(settings[name])
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, f"{path} is damaged ({error!r})") from error
    return watermark_ms if watermark_ms > 0 else None  # Spark says 0 for "none yet"


def _settings(lake: Lake, path: str) -> dict[str, Any]:
    """The settings of a batch, which are line 2 of its log."""
    try:
        return dict(json.loads(lake.read(path).decode().splitlines()[1]))
    except FileNotFoundError as error:
        raise damaged(path, f"{path} is missing, though its batch is committed") from error
    except (IndexError, TypeError, ValueError) as error:  # of bytes that are no text, too
        raise damaged(path, f"{path} is damaged ({error!r})") from error
