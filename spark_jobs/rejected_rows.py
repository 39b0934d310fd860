"""What a replay rejected, put in the place of what the table says of that interval."""

from collections.abc import Callable, Sequence

from include.fold.instants import instant_of
from include.lake.findings import record_findings
from include.lake.rejected_calls import ours
from include.lake.run_findings import rejected_findings
from include.lake.table_seal import seal_ours
from spark_jobs.engines.engine import Engine, Rows
from spark_jobs.replay_bronze import Replay


def replace_rejected(
    engine: Engine,
    replay: Replay,
    rejected: Sequence[Rows],
    from_us: int | None,
    until_us: int | None,
    before_writing: Callable[[], None] = lambda: None,
) -> dict[str, int]:
    """Make these the rejected rows of the interval, and note what they are in `ops/findings`.

    What the ledger says of the product holds of them, too: a recompute calls this before it
    replaces the product, and a reseed, which an intent stands for, when it has entered it.
    `before_writing` is not called where no row is and none was ever rejected.
    Returns the counts for the run's record.
    """
    stream = replay.stream.name
    table = engine.rejected_table(replay.lake, stream)
    found = table.summary(rejected, from_us)
    if found or replay.lake.is_delta_table(table.path):
        before_writing()
        table.replace_range(rejected, from_us, until_us)
        # Until the job has ended nothing else knows of that commit.
        seal_ours(replay.lake, f"rejected/{stream}", ours(stream))
    if found is None:
        return {"rows_rejected": 0, "timeouts_rejected": 0}
    between = instant_of(found.first_us), instant_of(found.last_us)
    findings = rejected_findings(stream, found.events, found.timeouts, between, found.by_key)
    record_findings(replay.lake, replay.run_id, stream, findings)
    return {"rows_rejected": found.events, "timeouts_rejected": found.timeouts}
