"""Rows where bugs of a boundary show: at one instant, and at the very end of a span, or beside it."""

from collections.abc import Iterator, Sequence

from tests.simulator.shapes import Landed
from tests.simulator.world import DELAY, World

CANDIDATES = 40  # numbers, of which one gives a row what another row is known by
DELAY_US = DELAY // DELAY.resolution


def tied(world: World, key: str, values: Sequence[int]) -> list[Landed]:
    """Rows at the instant of the key's newest one, in this order; one of the same value is it again."""
    newest = _newest(world, Landed(key, world.now_us, values[0]))
    return [] if newest is None else [newest._replace(value=value) for value in values]


def on_edge(world: World, key: str, value: int, edge: int, around_us: int) -> Landed | None:
    """A row after the key's newest one, just when something of it comes to its end."""
    newest = _newest(world, Landed(key, world.now_us, value))
    if newest is None:
        return None
    at_us = newest.time_us + _deadline_us(world, edge) + around_us
    return next(_known_again(world, newest, Landed(key, at_us, value)))


def settling(world: World, key: str, other: str, edge: int, around_ms: int) -> Landed | None:
    """A row that moves the watermark of a stream to that instant, or a millisecond beside it."""
    newest = _newest(world, Landed(key, world.now_us, 0))
    if newest is None:
        return None
    end_us = newest.time_us + _deadline_us(world, edge) + DELAY_US
    return Landed(other, (end_us // 1000 + around_ms) * 1000, 1)


def _newest(world: World, like: Landed) -> Landed | None:
    """The newest row, until now, of the key that a row has."""
    of = world.shape.key_of
    key = of(like)
    rows = (row for commit in world.commits for row in commit.rows if row.time_us <= world.now_us)
    return max((row for row in rows if of(row) == key), default=None, key=lambda row: row.time_us)


def _deadline_us(world: World, edge: int) -> int:
    deadlines = world.shape.deadlines_us
    return deadlines[edge % len(deadlines)]


def _known_again(world: World, newest: Landed, row: Landed) -> Iterator[Landed]:
    """The row with a number that makes it a duplicate of the newest one, if there is one; or as it is."""
    shape = world.shape
    if shape.by:
        same = (row._replace(value=row.value % 2 + 2 * n) for n in range(CANDIDATES))
        yield from (each for each in same if shape.seen(each) == shape.seen(newest))
    yield row
