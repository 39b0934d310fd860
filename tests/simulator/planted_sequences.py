"""The shortest ways to each of the planted bugs that were never there: what a sequence must have."""

from collections.abc import Callable
from dataclasses import dataclass

from include.settings import Source
from tests.simulator.kinds import FLOAT, INT, TEXT, Kind
from tests.simulator.operations import Operations
from tests.simulator.oracle import Landed
from tests.simulator.sequences import Sequence, one_more_run
from tests.simulator.shapes import FLAT, Shape
from tests.simulator.world import GROUPED, SOURCE

FLAG = Kind("bool", "boolean")
MONEY = Kind("decimal(12,2)", "decimal(12,2)", nullable=True)
NUMBERS = Kind("tuple", "array<bigint>", (INT,), nullable=True)


@dataclass(frozen=True)
class Case:
    """What brings a planted bug out."""

    sequence: Sequence
    shape: Shape = FLAT
    source: Source = SOURCE


def on_edges(edge: int, *beside_us: int) -> Sequence:
    """Rows of a key, each just when something of the one before comes to its end, or beside that."""

    def sequence(do: Operations) -> None:
        do.land_in_time("a", [0], 1)
        for us in beside_us:
            do.land_on_edge("a", 1, edge=edge, beside_us=us)
        one_more_run(do, "b", wait=60)

    return sequence


def a_reseed_between(wait: int) -> Sequence:
    """A savepoint is made while something waits, and goes on as live."""

    def sequence(do: Operations) -> None:
        do.land_in_time("a", [0], 1)
        do.pass_time(15)
        do.land_in_time("b", [0], 1)
        do.run(None)
        do.savepoint(None)
        do.reseed(None)
        do.land_on_edge("a", 1, edge=1, beside_us=1)
        one_more_run(do, "b", wait=wait)

    return sequence


def a_timer_that_outlives_its_state(do: Operations) -> None:
    for minutes in (0, 60, 1370):
        do.pass_time(minutes)
        do.land_in_time("a", [0], 1)
    one_more_run(do, "b", wait=60)


def rows_at_one_instant(do: Operations) -> None:
    do.land_in_time("a", [0], 1)
    for values in ([3, 2, 1, 0], [2, 0, 3]):
        do.land_tied("a", values)
    one_more_run(do, "b")


def backwards(do: Operations) -> None:
    """The newest row arrives first."""
    do.land_in_time("a", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 1)
    one_more_run(do, "b")


def runs(times: int) -> Sequence:
    """Of a row each, and of some keys."""

    def sequence(do: Operations) -> None:
        for number in range(times):
            do.land_in_time("ab"[number % 2], [*range(number % 4 + 1)], number % 4)
            one_more_run(do, "ba"[number % 2], value=number % 4)
        do.savepoint(None)
        do.reseed(None)
        for number in range(times):
            one_more_run(do, "ab"[number % 2], value=number % 4)

    return sequence


def in_turn(*steps: Callable[[Operations], None]) -> Sequence:
    def sequence(do: Operations) -> None:
        for step in steps:
            step(do)

    return sequence


def of(key: str, minute: int = 0) -> Callable[[Operations], None]:
    """A row of a key, so many minutes ago."""
    return lambda do: do.land_in_time(key, [minute], 1)


def a_stream_that_asks_for_more(do: Operations) -> None:
    one_more_run(do)
    do.deploy("c")
    do.recompute_all(None)


def cut_off_at_each_write(do: Operations) -> None:
    """Of a run of ingestion."""
    for kill in range(1, 9):
        do.pass_time(10)
        do.world.ingest_file([Landed("a", do._ago(3), 1), Landed("b", do._ago(1), 1)], kill)
        one_more_run(do, "b")


def upon_bronze_of_others(do: Operations) -> None:
    one_more_run(do)
    do.write_to_bronze("recompute_all", ago=5)


def upon_bronze_of_another_life(do: Operations) -> None:
    one_more_run(do)
    do.two_lives("bronze", "recompute_all", [False, False])


AGAIN = Shape((INT,), by=(0,), within=60)
CASES = {
    "ttl-late": Case(on_edges(0, 1, 0), Shape(ttl=25)),
    "ttl-early": Case(on_edges(0, 1, 0), Shape(ttl=25)),
    "ttl-of-savepoint": Case(a_reseed_between(60), Shape(ttl=90)),
    "ttl-not-of-timers": Case(a_timer_that_outlives_its_state, Shape(ttl=25, timers=(20, 1440))),
    "timers-lost-in-savepoint": Case(a_reseed_between(60), Shape(timers=(90, 90))),
    "timers-by-declaration": Case(on_edges(0), Shape(timers=(25, 25))),
    "timers-before-events": Case(on_edges(0, 0), Shape(timers=(25, 25))),
    "seen-lost-at-restart": Case(runs(4), AGAIN),
    "seen-lost-in-savepoint": Case(runs(4), Shape((INT,), by=(0,), within=600)),
    "seen-ends-early": Case(on_edges(1, 0), AGAIN),
    "seen-slides": Case(on_edges(1, 0, 0), AGAIN),
    "seen-by-arrival": Case(backwards, Shape((INT,), by=(0,), within=3)),
    "key-part-dropped": Case(runs(4), Shape((FLAG, INT), key=(0, 1), seed=5)),
    "key-none": Case(runs(4), Shape((INT.or_none(),), key=(0,))),
    "key-bucket": Case(runs(4)),
    "value-digits": Case(backwards, Shape((MONEY,), kept=(("written decimal(12,2)", 0),))),
    "value-dict-order": Case(backwards, Shape((INT,), kept=(("ordered", 0),))),
    "value-none": Case(runs(4), Shape((NUMBERS,), kept=(("lasts", 0),))),
    "value-zero-sign": Case(runs(4), Shape((FLOAT,), kept=(("lasts", 0),))),
    "order-of-ties": Case(rows_at_one_instant, Shape((TEXT, INT), kept=(("lasts", 0),))),
    "groups-newest": Case(in_turn(of("a", 9), of("b")), source=GROUPED),
    "groups-never-idle": Case(
        in_turn(of("a", 9), of("b"), lambda do: do.land_of_one("b", 4)), source=GROUPED
    ),
    "groups-pause": Case(
        in_turn(of("a", 9), of("b"), lambda do: do.pass_time(240), of("b")), source=GROUPED
    ),
    "groups-clock-back": Case(in_turn(of("a"), of("b", 9)), source=GROUPED),
    "groups-repair": Case(
        in_turn(
            of("a", 9),
            of("b", 9),
            lambda do: do.pass_time(30),
            lambda do: do.land_far_ahead("a", 30),
            lambda do: do.land_far_ahead("b", 30),
            lambda do: do.repair_clock(None, ago=5),
            of("a"),
        ),
        source=GROUPED,
    ),
    "groups-go-back": Case(in_turn(of("b", 9), of("a"), of("a", 5), of("b")), source=GROUPED),
    "rescued-lost": Case(a_stream_that_asks_for_more, Shape(late_value=True)),
    "log-not-finished": Case(cut_off_at_each_write, Shape(format="csv")),
    "log-added-twice": Case(cut_off_at_each_write, Shape(format="csv")),
    "log-clock-of-bronze": Case(cut_off_at_each_write, Shape(format="csv"), GROUPED),
    "log-others": Case(upon_bronze_of_others),
    "log-by-number": Case(upon_bronze_of_another_life),
}
