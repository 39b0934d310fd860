"""How far a stream has read bronze, and settled it, from its checkpoint without a JVM.

A stream's position is the newest batch in its checkpoint's offset log.
"""

import json
from dataclasses import dataclass

from include.checkpoint.offsets import newest_committed
from include.lake.how_to_mend import damaged
from include.lake.paths import Lake


@dataclass(frozen=True)
class BronzePosition:
    """The first version of bronze of which something may be unread."""

    table_id: str
    version: int


def settled_watermark_ms(lake: Lake, checkpoint: str) -> int | None:
    """The watermark that every bucket has settled by: that of the newest committed batch.

    Not the newest watermark that rows have brought: buckets they did not touch settle only
    in the batch without data that follows. None before the first.
    """
    committed = newest_committed(lake, checkpoint)
    if committed is None:
        return None
    watermark = _setting(lake, f"{checkpoint}/offsets/{committed}", "batchWatermarkMs")
    return watermark if watermark > 0 else None  # Spark says 0 for "none yet"


def consumed_version(lake: Lake, checkpoint: str) -> int | None:
    """The version of bronze up to which the committed batches have read; None before the first."""
    committed = newest_committed(lake, checkpoint)
    if committed is None:
        return None
    return read_position(lake, f"{checkpoint}/offsets/{committed}").version - 1


def is_settled(lake: Lake, checkpoint: str) -> bool:
    """Whether the newest committed batch left no watermark behind for the next one to settle by.

    It does when the run was killed before its batch without data. True before the first batch.
    """
    committed = newest_committed(lake, checkpoint)
    if committed is None:
        return True
    next_ms = _setting(lake, f"{checkpoint}/commits/{committed}", "nextBatchWatermarkMs")
    return next_ms <= (settled_watermark_ms(lake, checkpoint) or 0)


def refuse_damaged_batch(lake: Lake, checkpoint: str) -> None:
    """LakeError where the newest committed batch does not say by what the next one settles.

    Spark takes a number that is not there for 0, and says nothing.
    """
    is_settled(lake, checkpoint)


def read_position(lake: Lake, offsets: str) -> BronzePosition:
    # Line 1 is the log's version, line 2 the batch's settings, line 3 the one source.
    try:
        delta = json.loads(_read_text(lake, offsets).splitlines()[2])
        # Having read all of version V, Delta writes V + 1 and an index below every file.
        return BronzePosition(delta["reservoirId"], delta["reservoirVersion"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{offsets} is not the offset of a Delta source ({error!r})"
        raise damaged(offsets, what) from error


def _setting(lake: Lake, path: str, name: str) -> int:
    """A number among the settings of a batch, which are line 2 of its log."""
    try:
        return int(json.loads(_read_text(lake, path).splitlines()[1])[name])
    except (LookupError, TypeError, ValueError, FileNotFoundError) as error:
        raise damaged(path, f"{path} is damaged ({error!r})") from error


def _read_text(lake: Lake, path: str) -> str:
    with lake.filesystem.open_input_stream(lake.path_in_filesystem(path)) as stream:
        return bytes(stream.read()).decode()
