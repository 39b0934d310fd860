"""Charts through time, as what is where in them: a line for each series.

The template chart.html draws them as inline SVG. One kind of chart does not outweigh a library: the
smallest that ships in a package is a megabyte of script in each file. Colours are the page's own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 480, 170, 72, 12, 24
MOST_DOTS = 60  # more would hide the line
LIMIT_SHOWN = 3  # times the most that there was: a limit above it is only named

Point = tuple[datetime, float | None]


class Dot(NamedTuple):
    """A point of a series, whose number is from 1 on; and what it says."""

    number: int
    x: float
    y: float
    said: str


@dataclass(frozen=True)
class Chart:
    """Series by name over the same time, and what to draw beside them."""

    title: str
    series: Mapping[str, Sequence[Point]]
    text: Callable[[float], str]  # of a value
    begin: datetime
    end: datetime
    limit: float | None = None
    compacted: Sequence[datetime] = ()  # when the state was

    @cached_property
    def shown(self) -> dict[str, list[Point]]:
        """The points of its time."""
        return {
            name: [point for point in points if self.begin <= point[0] <= self.end]
            for name, points in self.series.items()
        }

    @cached_property
    def most(self) -> float:
        """What the axis ends with: the limit, too, if it is near; else all would lie on the ground."""
        known = [value for of in self.shown.values() for _, value in of if value is not None]
        most = max(known, default=0.0)
        is_near = self.limit is not None and self.limit <= LIMIT_SHOWN * most
        return max(most, self.limit or 0) if is_near else most

    def x(self, at: datetime) -> float:
        """Where an instant lies."""
        span = (self.end - self.begin).total_seconds() or 1.0
        return LEFT + (WIDTH - LEFT) * (at - self.begin).total_seconds() / span

    def y(self, value: float) -> float:
        """Where a value lies."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / (self.most or 1))

    @property
    def said(self) -> str:
        """It in words, for who does not see it."""
        parts = []
        for name, points in self.shown.items():
            values = [value for _, value in points if value is not None]
            if values:
                newest, most = self.text(values[-1]), self.text(max(values))
                parts.append(f"{name}: newest {newest}, most {most}")
        return f"{self.title}. {'; '.join(parts) or 'no data'}"

    @property
    def legend(self) -> Iterator[tuple[str, str]]:
        """Kinds of marks, and what each is."""
        yield from ((f"s{number}", name) for number, name in enumerate(self.series, 1))
        if self.limit is not None:
            yield "limit", f"limit {self.text(self.limit)}"
        if self.compacted:
            yield "mark", "compacted"

    @property
    def rows(self) -> dict[str, float]:
        """Of the grid: its text, and where it is. Of a small number, the half may read as another."""
        return {
            self.text(share * self.most): self.y(share * self.most) for share in (0.5, 0.0, 1.0)
        }

    @property
    def ticks(self) -> Iterator[tuple[str, float, str]]:
        """Of the time: text, where, and on which side."""
        middle = self.begin + (self.end - self.begin) / 2
        for at, anchor in ((self.begin, "start"), (middle, "middle"), (self.end, "end")):
            yield minute(at), self.x(at), anchor

    @property
    def lines(self) -> Iterator[tuple[int, str]]:
        """Each series as polylines; where a value is missing it is broken."""
        for number, points in enumerate(self.shown.values(), 1):
            for is_known, part in groupby(points, lambda point: point[1] is not None):
                if is_known:
                    at = (f"{self.x(at):.1f},{self.y(value or 0):.1f}" for at, value in part)
                    yield number, " ".join(at)

    @property
    def dots(self) -> Iterator[Dot]:
        """The points of as few as do not hide the line."""
        for number, points in enumerate(self.shown.values(), 1):
            for at, value in points if len(points) <= MOST_DOTS else ():
                if value is not None:
                    said = f"{minute(at)} UTC: {self.text(value)}"
                    yield Dot(number, self.x(at), self.y(value), said)

    @property
    def limit_y(self) -> float | None:
        """Where the limit is, if it is near."""
        is_near = self.limit is not None and self.limit <= self.most
        return self.y(self.limit or 0) if is_near else None


def minute(at: datetime) -> str:
    """An instant as people read it."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"
