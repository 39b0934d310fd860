"""What is on record of a stream when it is checked, and what a check adds to it."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.checkpoint.measure_checkpoint import CheckpointSize
from include.coverage.record import StreamRecord, read_record
from include.lake.ops import append_ops, newest_row, not_ahead, read_ops
from include.lake.ops_schemas import SCHEMAS
from include.lake.paths import Lake, LakeError
from include.lake.stream_result import measured_bytes
from include.plans.open_stream import DRAINING_JOBS


@dataclass(frozen=True)
class Recorded:
    """The newest rows about a stream; None where there is none."""

    run: Mapping[str, Any] | None  # of ops/runs, of any outcome
    batch: int | None  # the newest of this generation that is in the table
    rows_pending: int  # after it
    bytes: int | None  # of the checkpoint when it was last measured

    @property
    def run_id(self) -> str | None:
        return None if self.run is None else self.run["run_id"]


def read_recorded(lake: Lake, stream: str, generation: int) -> Recorded:
    """The newest rows about `stream`."""
    runs = read_ops(lake, "runs", {"subject": stream}, before=("ended_at", not_ahead()))
    ours = runs.filter(pc.is_in(runs["job"], pa.array(DRAINING_JOBS)))
    try:
        record = read_record(lake, stream)
    except LakeError:  # a finding of its own
        record = StreamRecord(stream=stream)
    return Recorded(
        newest_row(ours, "ended_at"),
        record.batch_of(generation),
        rows_pending=record.totals.get("rows_pending", 0),
        bytes=measured_bytes(lake, stream=stream, generation=generation),
    )


def record_sizes(lake: Lake, size: CheckpointSize, run_id: str | None) -> None:
    """Append a checkpoint's sizes to `ops/checkpoint_sizes`, in one commit."""
    rows = list(_rows(size))
    if not rows:
        return  # there is no checkpoint yet
    known = {
        "stream": size.stream,
        "generation": size.generation,
        "measured_at": size.measured_at,
        "run_id": run_id,
    }
    columns = SCHEMAS["checkpoint_sizes"].names
    told = [{name: row[name] for name in columns if name in row} for row in rows]
    append_ops(lake, "checkpoint_sizes", [known | row for row in told])


def _rows(size: CheckpointSize) -> Iterator[dict[str, Any]]:
    for part in size.parts:
        if part.part != "state" or not size.stores:
            yield asdict(part)
    for store in size.stores:
        yield {"part": "state", **asdict(store)}
