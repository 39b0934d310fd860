"""What came of a recovery drill: compared, recorded in `ops/runs`, and its copy deleted."""

from collections import Counter
from datetime import datetime
from hashlib import blake2b

import pyarrow.dataset as ds

from include.care.last_drill import DRILL
from include.care.recovery_drill import Drill, begun_drill, drill_lake, end_drill
from include.fold.instants import instant_of
from include.job import RunRecord, recorded_run
from include.lake.open_delta import delta_table
from include.lake.ops import read_ops
from include.lake.paths import Lake, LakeError, files_of
from include.settings import Stream
from include.stream_definition import load_definition
from include.text_table import counted

RESTORE = "reseed_stream"
RUN_COLUMNS = ("run_id", "ended_at", "outcome", "error")


class DrillError(Exception):
    """The drill did not show that restoring works: it failed, or came to other rows."""


def finish_drill(lake: Lake, stream: Stream, dag_run_id: str | None = None) -> str:
    """What the drill has shown, in a line. DrillError, recorded as the others, when it has not."""
    drill = _own_drill(lake, stream, dag_run_id)
    try:
        with recorded_run(lake, DRILL, stream.name, dag_run_id) as record:
            record["started_at"] = instant_of(drill.began_us)
            _judge(drill_lake(lake, stream), stream, drill, record)
    finally:
        end_drill(lake, stream)
    minutes = (record["ended_at"] - record["started_at"]).total_seconds() / 60
    return (
        f"{stream.name} was restored from savepoint {record['savepoint_id']} in {minutes:.1f} "
        f"minutes: {counted(record['rows_out'], 'row')} compared, all equal"
    )


def _own_drill(lake: Lake, stream: Stream, dag_run_id: str | None) -> Drill:
    """LakeError where the copy is another drill's, which is left to it."""
    drill = begun_drill(lake, stream)
    if drill.dag_run_id != dag_run_id:
        whose = f"the Dag run {drill.dag_run_id}" if drill.dag_run_id else "a drill by hand"
        raise LakeError(
            f"{lake.drill(stream.name)} is of {whose}: this drill has no copy, and has shown "
            f"nothing. Clear copy_{stream.name} of its Dag run with all that follows, or "
            f"`./stateful drill {stream.name}`"
        )
    return drill


def _judge(copy: Lake, stream: Stream, drill: Drill, record: RunRecord) -> None:
    """Into `record`: from which savepoint, how many rows were compared, whether all are equal."""
    run = _restore(copy, stream, drill)
    where = {"stream": stream.name, "run_id": run}
    (interval,) = read_ops(copy, "intervals", where).to_pylist()
    until = instant_of(drill.until_us)
    record |= {"savepoint_id": interval["base_savepoint"], "rows_in": interval["rows_read"]}
    has = _rows(copy, stream, drill.table_version, interval["start"], until)
    restored = _rows(copy, stream, None, interval["start"], until)
    lacks, more = (has - restored).total(), (restored - has).total()
    record |= {"until": until, "rows_out": restored.total(), "is_equal": not lacks + more}
    if lacks + more:
        raise DrillError(
            f"not equal: of {counted(has.total(), 'row')} of the table before {until:%F %T} UTC the "
            f"restored one lacks {lacks:,}, and it has {more:,} others"
        )
    _refuse_damaged(copy, run)


def _refuse_damaged(copy: Lake, restore: str) -> None:
    """A restore that a damaged savepoint has made take the long way has found what nobody knew."""
    where = {"run_id": restore, "finding": "savepoint_damaged"}
    found = read_ops(copy, "findings", where, ("detail",)).to_pylist()
    if found:
        raise DrillError(f"equal, but by an older savepoint or none: {found[0]['detail']}")


def _restore(copy: Lake, stream: Stream, drill: Drill) -> str:
    """The run that has restored the copy: none that was copied, whatever instants those have."""
    where = {"job": RESTORE, "subject": stream.name}
    rows = read_ops(copy, "runs", where, RUN_COLUMNS).to_pylist()
    runs = [row for row in rows if row["run_id"] not in drill.copied_runs]
    if not runs:
        raise DrillError("the restore has not run to its end: its log says why")
    newest = max(runs, key=lambda row: row["ended_at"])
    if newest["outcome"] != "succeeded":
        raise DrillError(f"the restore failed: {newest['error']}")
    return str(newest["run_id"])


def _rows(
    copy: Lake, stream: Stream, version: int | None, start: datetime | None, until: datetime
) -> Counter[bytes]:
    """How often a version (None: the newest) of the copy's table has each row, by a hash of it.

    Of an append table those emitted from `start` on and before `until`; else all.
    """
    path = copy.table(stream.name)
    rows = delta_table(path, version=version).to_pyarrow_dataset(filesystem=files_of(path))
    wanted = None
    if load_definition(stream).fold.output_mode == "append":
        wanted = ds.field("emitted_at") < until
        wanted = wanted if start is None else wanted & (ds.field("emitted_at") >= start)
    return Counter(
        blake2b(repr(sorted(row.items())).encode(), digest_size=16).digest()
        for batch in rows.to_batches(filter=wanted)
        for row in batch.to_pylist()
    )
