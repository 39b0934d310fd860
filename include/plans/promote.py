"""When a backfill promotes: takes late rows into the live state, by a reseed at its end."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise

from croniter import croniter

from include.coverage.table_coverage import table_coverage
from include.lake.paths import Lake
from include.plans.plan_recompute import settled_until
from include.plans.stream_identity import stream_identity
from include.settings import Stream
from include.text_table import counted

# To either side. Airflow takes the dates in a URL, and a backfill starts its runs in order, so
# those of it that wait are next to the one that runs.
NEAR = 100


def why_not_promote(
    lake: Lake, stream: Stream, start: datetime, queued: Callable[[Sequence[datetime]], int]
) -> str | None:
    """Why the run whose interval begins at `start` leaves it; None when it is to promote.

    `queued` tells how many runs of these logical dates wait to start. Those that run already do
    not count: two at the end would leave it to each other, and who comes too late finds nothing
    to promote. Raises LakeError when there is no bronze.
    """
    # By the code of today: until live has run by it, nothing on record says that it is another.
    if table_coverage(lake, stream, stream_identity(lake, stream)).coverage.live_is_right:
        return f"the live state of {stream.name} is right: there is nothing to promote"
    dates = near_dates(stream.schedule, start, settled_until(lake, stream.name))
    # Not asked about no dates: Airflow would count the runs of all.
    waiting = sum(queued(side) for side in dates if side)
    if waiting:
        return f"the backfill has {counted(waiting, 'more run')} queued: the last one promotes"
    return None


def near_dates(
    schedule: str, start: datetime, settled: datetime | None
) -> tuple[list[datetime], list[datetime]]:
    """The logical dates next to `start`, before and after it, of intervals that end by `settled`.

    Later runs are not a backfill's: it would be refused, and live's own scheduled runs lie there.
    """
    back, ahead = croniter(schedule, start), croniter(schedule, start)
    before = [back.get_prev(datetime) for _ in range(NEAR)]
    ticks = [ahead.get_next(datetime) for _ in range(NEAR + 1)]
    after = [date for date, end in pairwise(ticks) if settled is not None and end <= settled]
    return before, after
