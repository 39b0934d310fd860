"""Whether a stream has something to do, read from the lake without a JVM.

It is behind when the newest batch of its checkpoint was never committed, or when bronze got data
after it. And it has something to do when a run would fail: else nobody would hear why; and when
its position grows so old that bronze's log may be cut there.
"""

from include.checkpoint.log_retention import needed_commit
from include.checkpoint.offsets import newest_committed, newest_planned
from include.checkpoint.position import BronzePosition, read_position
from include.coverage.ledger import look
from include.coverage.live import was_cut_off
from include.lake.delta_log import adds_data, read_actions
from include.lake.ops import not_ahead, read_ops
from include.lake.paths import Lake
from include.lake.read_tables import table_to_read
from include.landing.clock import moves_nothing
from include.landing.clock_repair import why_not_run
from include.plans.open_stream import OpenStream, open_stream
from include.settings import Stream

# The jobs that commit batches of a stream.
DRAINING_JOBS = ("run_stream", "compact_state")


def has_waiting_rows(lake: Lake, stream: Stream) -> bool:
    """Whether a run of `stream` would find something to do.

    When in doubt it answers True: a run too many costs half a minute, one too few loses time.
    """
    if not lake.is_delta_table(lake.bronze(stream.source)):
        return False
    if why_not_run(lake, stream) is not None:
        return True  # the run fails, and says why
    opened = open_stream(lake, stream)
    planned = newest_planned(lake, opened.checkpoint)
    if _is_cut_off(opened, planned):
        return True
    # As the first of these: the run fails, and says why.
    return look(lake, opened.generations).distrust is not None or _is_behind(opened, planned)


def _is_cut_off(opened: OpenStream, planned: int | None) -> bool:
    """Whether something was begun, and is for the next run to finish."""
    lake, row = opened.lake, opened.row
    if planned is None and opened.is_reseeded:
        return True  # its first run makes a checkpoint of the seed
    if opened.generations.intent is not None:
        return True  # a reseed
    if planned != newest_committed(lake, opened.checkpoint):
        return True
    if has_unreported_batch(lake, opened.name):
        return True
    # An update table shows keys as of different instants.
    return row is not None and row["output_mode"] == "update" and was_cut_off(lake, row)


def _is_behind(opened: OpenStream, planned: int | None) -> bool:
    """Whether bronze has what the stream has not read, or is not the bronze that it has read."""
    lake, bronze = opened.lake, opened.lake.bronze(opened.source)
    table = table_to_read(bronze)
    position = BronzePosition(str(table.metadata().id), 0)
    if planned is not None:
        position = read_position(lake, f"{opened.checkpoint}/offsets/{planned}")
    if str(table.metadata().id) != position.table_id:
        return True  # another table under this name: the run fails, and says so
    if table.version() + 1 < position.version:
        return True  # an older copy: as above
    versions = range(position.version, table.version() + 1)
    if any(_has_data(lake, bronze, version) for version in versions):
        return True
    needed = needed_commit(lake, opened.generations, opened.source)
    return needed is not None and (needed.is_gone or needed.is_growing_old)


def has_unreported_batch(lake: Lake, stream: str) -> bool:
    """Whether the newest batch belongs to a run that died before it was recorded.

    Its rows are in the table; a further run records how far that is complete, so that it
    can be published.
    """
    columns = ("generation", "batch_id", "run_id", "committed_at")
    batches = read_ops(lake, "batches", {"stream": stream}, columns).to_pylist()
    if not batches:
        return False
    newest = max(batches, key=lambda row: (row["generation"], row["batch_id"]))
    where = {"subject": stream, "outcome": "succeeded"}
    ended = read_ops(lake, "runs", where, ("run_id", "job", "ended_at")).to_pylist()
    return not any(
        run["run_id"] == newest["run_id"] or newest["committed_at"] <= run["ended_at"] < not_ahead()
        for run in ended
        if run["job"] in DRAINING_JOBS
    )


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
    return adds_data(actions)
