"""What producers do to a world: rows that land, in time, late, ahead, of one instant, on edges."""

from collections.abc import Callable
from datetime import timedelta

from include.landing.amendments import amendments_of
from tests.simulator.edges import on_edge, settling, tied
from tests.simulator.oracle import Landed
from tests.simulator.world import MINUTE_US, SOURCE, World

HOUR = timedelta(hours=1)
HOUR_US = 60 * MINUTE_US


class DataOperations:
    """After each of them everything is looked at."""

    world: World
    run: Callable[[int | None], None]
    _audit: Callable[[], None]

    def land_in_time(self, key: str, ago: list[int], value: int) -> None:
        self._land([Landed(key, self._ago(minute), value) for minute in ago])

    def land_late(self, key: str, ago: list[int], value: int) -> None:
        self._land([Landed(key, self._ago(60 * hour + 20), value) for hour in ago])

    def land_tied(self, key: str, values: list[int]) -> None:
        if rows := tied(self.world, key, values):
            self._land(rows)

    def land_on_edge(self, key: str, value: int, edge: int, beside_us: int) -> None:
        if row := on_edge(self.world, key, value, edge, beside_us):
            self._wait_for(row)
            self._land([row])

    def settle_on_edge(self, key: str, other: str, edge: int, beside_ms: int) -> None:
        """The watermark comes to an end of something, and a run to its end."""
        if row := settling(self.world, key, other, edge, beside_ms):
            self._wait_for(row)
            self._land([row])
            self.run(None)

    def _wait_for(self, row: Landed) -> None:
        self.world.now_us = max(self.world.now_us, row.time_us)

    def land_ahead(self, key: str, ahead: int) -> None:
        self._land([Landed(key, self._ago(-ahead), 1)])

    def land_far_ahead(self, key: str, hours: int) -> None:
        """As ingestion took it in under a machine clock that ran ahead; that is put right at once."""
        now_us = self.world.now_us
        self.world.now_us += hours * HOUR_US
        self._land([Landed(key, self.world.now_us, 1)])
        self.world.now_us = now_us

    def land_of_one(self, key: str, hours: int) -> None:
        """Of the others nothing comes for some hours."""
        for _ in range(hours):
            self._land([Landed(key, self._ago(1), 1)])
            self.world.pass_time(HOUR)

    def pass_time(self, span: int) -> None:
        self.world.pass_time(timedelta(minutes=span))

    def clock_row(self) -> None:
        repair = amendments_of(self.world.lake, SOURCE.name).repair
        if repair is not None and not repair.is_reset:
            return  # ingestion refuses
        self.world.ingest_clock(self._ago(1))
        self.world.pass_time(timedelta(seconds=1))

    def _land(self, rows: list[Landed]) -> None:
        repair = amendments_of(self.world.lake, SOURCE.name).repair
        if repair is not None and not repair.is_reset:
            return  # ingestion refuses
        self.world.ingest(rows)
        self.world.pass_time(timedelta(seconds=7))
        self._audit()

    def _ago(self, minute: int) -> int:
        return self.world.now_us - minute * MINUTE_US + minute % 3  # some in one microsecond
