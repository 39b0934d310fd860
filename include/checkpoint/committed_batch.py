"""The batch that a stream's state is read after, and whether that state is one of ours.

From the checkpoint's logs alone, without a JVM.
"""

import json
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from include.checkpoint.offsets import newest_committed, newest_planned
from include.lake.generations import Generations
from include.lake.how_to_mend import damaged, subject_of
from include.lake.paths import Lake, LakeError
from include.spark.conf import STATE, STATE_STORE

LOG_FORMAT = "v1"
# What Spark pins in each batch's offsets, and the states are written with.
PROVIDER = f"{STATE_STORE}.providerClass"
STATE_FORMAT = {PROVIDER: STATE[PROVIDER], f"{STATE_STORE}.encodingFormat": "unsaferow"}


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

    Raises LakeError when there is none, or when its state is not of the format of our streams.
    """
    stream, generation = generations.stream, generations.number
    checkpoint = lake.checkpoint(stream, generation)
    batch_id = newest_committed(lake, checkpoint)
    if batch_id is None:
        raise _none_yet(lake, stream, checkpoint)
    begun = _settings(lake, f"{checkpoint}/offsets/{batch_id}")
    ended = _settings(lake, f"{checkpoint}/commits/{batch_id}")
    conf = begun.settings.get("conf")
    for name, value in STATE_FORMAT.items():
        found = conf.get(name) if isinstance(conf, dict) else None
        if found != value:
            raise _other_format(begun.path, name, found, value)
    return CommittedBatch(
        generation=generation,
        checkpoint=checkpoint,
        batch_id=batch_id,
        watermark_ms=_watermark_ms(begun, "batchWatermarkMs"),
        next_watermark_ms=_watermark_ms(ended, "nextBatchWatermarkMs"),
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


def _none_yet(lake: Lake, stream: str, checkpoint: str) -> LakeError:
    why = f"its first batch in {checkpoint} was begun and not finished"
    if newest_planned(lake, checkpoint) is None:
        why = f"there is no checkpoint {checkpoint}"
    return LakeError(
        f"{stream} has no state yet, as {why}. Wait for its run, or run the stream",
        code="nothing_there",
        subject=stream,
        command=f"./stateful stream {stream}",
    )


@dataclass(frozen=True)
class _LogEntry:
    path: str
    settings: dict[str, Any]


def _settings(lake: Lake, path: str) -> _LogEntry:
    # Line 1 is the log's version, line 2 its settings; in offsets, the sources follow.
    try:
        log_format, settings, *_ = _lines(lake, path)
        if log_format != LOG_FORMAT:
            raise _other_format(path, "log format", log_format, LOG_FORMAT)
        return _LogEntry(path, dict(json.loads(settings)))
    except (TypeError, ValueError) as error:  # of too few lines, of bytes that are no text, too
        raise damaged(path, f"{path} is damaged ({error!r})") from error


def _lines(lake: Lake, path: str) -> list[str]:
    try:
        with lake.filesystem.open_input_stream(lake.path_in_filesystem(path)) as stream:
            return bytes(stream.read()).decode().splitlines()
    except FileNotFoundError as error:
        raise damaged(path, f"{path} is missing, though its batch is committed") from error


def _watermark_ms(entry: _LogEntry, name: str) -> int | None:
    try:
        watermark_ms = int(entry.settings[name])
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(entry.path, f"{entry.path} is damaged ({error!r})") from error
    return watermark_ms if watermark_ms > 0 else None  # Spark says 0 for "none yet"


def _other_format(path: str, name: str, found: object, known: str) -> LakeError:
    return LakeError(
        f"{path} is not of a stream of this project: its {name} is {found!r}, not {known!r}",
        code="unreadable_checkpoint",
        subject=subject_of(path),
    )
