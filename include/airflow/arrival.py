"""Start by arrival: a trigger of Airflow that asks the lake what waits for a stream.

An event of the Asset `arrival/<stream>` is a hint: the run looks itself. Airflow loses events (of a paused Dag, of a
triggerer that dies) and holds them back (beside a backfill); so the trigger asks again as long as something waits.
"""

import asyncio
import json
import logging
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk import (
    Asset,
    AssetAny,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronDataIntervalTimetable,
)
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from include.airflow.assets import as_uri, table_asset
from include.observe.arrival import Memory, Waiting
from include.registry import parents_of, stream_named
from include.settings import PROJECT, Stream

log = logging.getLogger(__name__)

LOOKS = "include.observe.arrival"
# A broker that does not answer: the next look asks again.
ANSWERS_WITHIN = 300.0


class ArrivalTrigger(BaseEventTrigger):
    """Fires when something new waits for a stream, and again while it does; it never ends by itself."""

    def __init__(self, stream: str, lake: str, seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stream, self.lake, self.seconds = stream, lake, seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        given = {"stream": self.stream, "lake": self.lake, "seconds": self.seconds}
        return f"{type(self).__module__}.{type(self).__qualname__}", given

    def shared_stream_key(self) -> tuple[str, str]:
        """One process looks for all streams of an interval."""
        return self.lake, str(self.seconds)

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        while True:
            # One that failed says nothing: an error here would start the trigger anew, at once.
            if (found := await looked(kwargs["lake"], kwargs["seconds"])) is not None:
                yield found
            await asyncio.sleep(kwargs["seconds"])

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[Any]
    ) -> AsyncIterator[TriggerEvent]:
        memory = Memory()
        async for looks in shared_stream:
            found = looks.get(self.stream)
            if memory.is_due(found and Waiting(*found), time.monotonic()):
                yield TriggerEvent({"waiting": found})  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        shared = self.open_shared_stream(self.serialize()[1])
        async for event in self.filter_shared_stream(shared):
            yield event


async def looked(lake: str, seconds: float) -> dict[str, Any] | None:
    """Return what waits, by stream; None when the process failed, and the triggerer's log says why."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", LOOKS, lake, str(seconds)), cwd=PROJECT, stdin=DEVNULL, stdout=PIPE
    )
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            said, _ = await process.communicate()
    except TimeoutError:
        log.warning("%s has not answered within %s s", LOOKS, ANSWERS_WITHIN)
        return None
    finally:
        if process.returncode is None:
            process.kill()
    # A stream's file may print, too.
    return dict(json.loads(said.splitlines()[-1])) if process.returncode == 0 else None


def schedule_of(stream: Stream, lake: str) -> CronDataIntervalTimetable | AssetOrTimeSchedule:
    """The Dag's schedule: its cron, which backfills go by, the tables that it reads, and arrivals if it has `on_arrival`."""
    # Not the bare cron string: its runs have empty data intervals.
    cron = CronDataIntervalTimetable(stream.schedule, timezone="UTC")
    assets = [table_asset(stream_named(parent), lake) for parent in parents_of(stream.name)]
    if stream.on_arrival is not None:
        assets.append(_arrival_asset(stream, lake, stream.on_arrival.total_seconds()))
    return AssetOrTimeSchedule(timetable=cron, assets=AssetAny(*assets)) if assets else cron


def _arrival_asset(stream: Stream, lake: str, seconds: float) -> Asset:
    """Its own Asset: Airflow takes the watchers of one that several Dags name from any of these."""
    trigger = ArrivalTrigger(stream.name, lake, seconds)
    return Asset(
        name=f"arrival/{stream.name}",
        uri=as_uri(f"{lake}/arrival/{stream.name}"),
        watchers=[AssetWatcher(name=stream.name, trigger=trigger)],
    )
