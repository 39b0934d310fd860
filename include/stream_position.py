"""Whether a stream has something to do, read from the lake without a JVM.

A stream's position is the newest batch in its checkpoint's offset log. It is behind when
that batch was never committed, or when bronze got data after it.
"""

import json
from dataclasses import dataclass

from deltalake import DeltaTable

from include.checkpoint import newest_committed, newest_planned
from include.clock import moves_nothing
from include.delta_log import read_actions
from include.generations import FIRST, current_row, is_reseeded, open_intent
from include.lake import Lake, LakeError
from include.ops import read_ops
from include.streams import Stream

# The jobs that commit batches of a stream.
DRAINING_JOBS = ("run_stream", "compact_state")


@dataclass(frozen=True)
class BronzePosition:
    """The first version of bronze of which something may be unread."""

    table_id: str
    version: int


def has_waiting_rows(lake: Lake, stream: Stream) -> bool:
    """Whether a run of `stream` would find something to do.

    When in doubt it answers True: a run too many costs half a minute, one too few loses time.
    """
    bronze = lake.bronze(stream.source)
    if not lake.is_delta_table(bronze):
        return False
    row = current_row(lake, stream.name)
    generation = FIRST if row is None else row["generation"]
    checkpoint = lake.checkpoint(stream.name, generation)
    planned = newest_planned(lake, checkpoint)
    if planned is None and is_reseeded(row):
        return True  # its first run makes a checkpoint of the seed
    if open_intent(lake, stream.name) is not None:
        return True  # a run finishes a reseed that was cut off
    if planned != newest_committed(lake, checkpoint) or has_unreported_batch(lake, stream.name):
        return True
    table = DeltaTable(bronze)
    position = BronzePosition(str(table.metadata().id), 0)
    if planned is not None:
        position = read_position(lake, f"{checkpoint}/offsets/{planned}")
    if str(table.metadata().id) != position.table_id:
        return True  # another table under this name: the run fails, and says so
    versions = range(position.version, table.version() + 1)
    return any(_has_data(lake, bronze, version) for version in versions)


def has_unreported_batch(lake: Lake, stream: str) -> bool:
    """Whether the newest batch belongs to a run that died before it was recorded.

    Its rows are in the table; a further run records how far that is complete, so that it
    can be published.
    """
    batches = read_ops(lake, "batches", {"stream": stream}).to_pylist()
    if not batches:
        return False
    newest = max(batches, key=lambda row: (row["generation"], row["batch_id"]))
    ended = read_ops(lake, "runs", {"subject": stream, "outcome": "succeeded"}).to_pylist()
    return not any(
        run["job"] in DRAINING_JOBS and run["ended_at"] >= newest["committed_at"] for run in ended
    )


def settled_watermark_ms(lake: Lake, checkpoint: str) -> int | None:
    """The watermark that every bucket has settled by: that of the newest committed batch.

    Not the newest watermark that rows have brought: buckets they did not touch settle only
    in the batch without data that follows. None before the first.
    """
    committed = newest_committed(lake, checkpoint)
    if committed is None:
        return None
    settings = _read_text(lake, f"{checkpoint}/offsets/{committed}").splitlines()[1]
    watermark = int(json.loads(settings)["batchWatermarkMs"])
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
    log = json.loads(_read_text(lake, f"{checkpoint}/commits/{committed}").split("\n")[1])
    return int(log["nextBatchWatermarkMs"]) <= (settled_watermark_ms(lake, checkpoint) or 0)


def read_position(lake: Lake, offsets: str) -> BronzePosition:
    # Line 1 is the log's version, line 2 the batch's settings, line 3 the one source.
    lines = _read_text(lake, offsets).splitlines()
    try:
        delta = json.loads(lines[2])
        # Having read all of version V, Delta writes V + 1 and an index below every file.
        return BronzePosition(delta["reservoirId"], delta["reservoirVersion"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise LakeError(f"{offsets} is not the offset of a Delta source: {error!r}") from error


def _has_data(lake: Lake, bronze: str, version: int) -> bool:
    """Whether a commit added rows. OPTIMIZE and the like do not; a stream skips them too.

    Nor do the rows count by which a compaction made itself a batch: for no other stream of
    the source are they worth a run.
    """
    try:
        actions = read_actions(lake, bronze, version)
    except FileNotFoundError:
        return True  # cleaned up already: the run will say what that means
    if any(moves_nothing(action.get("commitInfo", {})) for action in actions):
        return False
    return any(action.get("add", {}).get("dataChange", False) for action in actions)


def _read_text(lake: Lake, path: str) -> str:
    with lake.filesystem.open_input_stream(lake.path_in_filesystem(path)) as stream:
        return bytes(stream.read()).decode()
