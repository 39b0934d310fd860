"""For what the steps of a stream are taken: a run of its schedule, of a backfill, or by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from include.settings import Stream

if TYPE_CHECKING:  # imported by the functions that need them, as in include/steps.py
    from include.care.check_checkpoint import CheckResult
    from include.lake.paths import Lake

RunPath = Literal["live", "backfill"]


def none_queued(dates: Sequence[datetime]) -> int:
    """Of the runs with these logical dates, how many wait: by hand there are none."""
    return 0


def none_due(stream: Stream) -> bool:
    """Whether a run of another stream has begun: by hand there is none."""
    return False


def none_waiting(logical_date: datetime) -> bool:
    """Whether a run of the stream with that logical date waits to recompute: by hand there is none."""
    return False


@dataclass(frozen=True)
class StreamRun:
    """What the steps are taken for: by a schedule, by a backfill, or by hand."""

    lake: "Lake"
    stream: Stream
    path: RunPath = "live"
    start: datetime | None = None  # of its interval; by hand it has none
    until: datetime | None = None
    is_promoting: bool = False  # a backfill with the parameter `promote`
    queued: Callable[[Sequence[datetime]], int] = none_queued
    is_due: Callable[[Stream], bool] = none_due
    is_waiting: Callable[[datetime], bool] = none_waiting
    dag_run_id: str | None = None
    is_dry: bool = False  # nothing is changed or recorded
    is_compacting: bool = False  # whatever would be gained

    @cached_property
    def checked(self) -> "CheckResult":
        """The state of the checkpoint when it was first asked for: after the stream's run."""
        from include.care.check_checkpoint import check_checkpoint

        return check_checkpoint(self.lake, self.stream)
