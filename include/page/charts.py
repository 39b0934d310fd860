"""Charts through time, as what is where in them: a line for each series, or bars that add up.

The template chart.html draws them as inline SVG. Two kinds of chart do not outweigh a library: the
smallest that ships in a package is a megabyte of script in each file. Colours are the page's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 480, 170, 72, 12, 24
BINS = 60
LIMIT_SHOWN = 3  # times the most that there was: a limit above it is only named

Text = Callable[[float], str]
Point = tuple[datetime, float | None]


@dataclass(frozen=True)
class Chart:
    """Series by name over the same time, and what to draw beside them."""

    title: str
    series: Mapping[str, Sequence[Point]]
    text: Text  # of a value
    begin: datetime
    end: datetime
    is_bars: bool = False
    is_mean: bool = False  # bars: of a bin's points the mean, not the sum
    limit: float | None = None
    compacted: Sequence[datetime] = ()  # when the state was

    def within(self) -> dict[str, list[Point]]:
        """The points of its time."""
        return {
            name: [point for point in points if self.begin <= point[0] <= self.end]
            for name, points in self.series.items()
        }

    def x(self, at: datetime) -> float:
        """Where an instant lies."""
        span = (self.end - self.begin).total_seconds() or 1.0
        return LEFT + (WIDTH - LEFT) * (at - self.begin).total_seconds() / span


class Line(NamedTuple):
    """A part of a series without a gap, as the points of a polyline."""

    number: int  # of the series, from 1
    points: str


class Mark(NamedTuple):
    """A point, or a bar from `y` down, and what it says."""

    number: int
    x: float
    y: float
    high: float
    said: str


class Drawing(NamedTuple):
    """What is where in a chart."""

    title: str
    said: str  # the chart in words, for who does not see it
    legend: list[tuple[str, str]]
    rows: dict[str, float]  # of the grid: its text, and where it is
    ticks: list[tuple[str, float, str]]  # of the time: text, where, anchor
    lines: list[Line]
    dots: list[Mark]
    bars: list[Mark]
    limit_y: float | None
    compacted: list[tuple[float, str]]


def drawing(chart: Chart) -> Drawing:
    """`chart` within its time."""
    shown = chart.within()
    binned = [_binned(chart, points) for points in shown.values()] if chart.is_bars else []
    known = [value for points in shown.values() for _, value in points if value is not None]
    most = _most([sum(values) for values in zip(*binned, strict=True)] or known, chart.limit)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / (most or 1))

    middle = chart.begin + (chart.end - chart.begin) / 2
    ticks = ((chart.begin, "start"), (middle, "middle"), (chart.end, "end"))
    has_limit = chart.limit is not None and chart.limit <= most
    return Drawing(
        title=chart.title,
        said=_said(chart, shown),
        legend=_legend(chart),
        # Of a small number, the half may read as one of the others.
        rows={chart.text(share * most): y(share * most) for share in (0.5, 0.0, 1.0)},
        ticks=[(_minute(at), chart.x(at), anchor) for at, anchor in ticks],
        lines=[] if chart.is_bars else _lines(chart, shown, y),
        dots=[] if chart.is_bars else _dots(chart, shown, y),
        bars=_bars(chart, binned, y),
        limit_y=y(chart.limit) if has_limit and chart.limit is not None else None,
        compacted=[
            (chart.x(at), f"compacted {_minute(at)} UTC")
            for at in chart.compacted
            if chart.begin <= at <= chart.end
        ],
    )


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _most(values: Sequence[float], limit: float | None) -> float:
    """What the axis ends with: the limit, too, if it is near; else all would lie on the ground."""
    most = max(values, default=0.0)
    return max(most, limit) if limit is not None and limit <= LIMIT_SHOWN * most else most


def _lines(
    chart: Chart, shown: Mapping[str, Sequence[Point]], y: Callable[[float], float]
) -> list[Line]:
    """Each series; where a value is missing it is broken."""
    return [
        Line(number, " ".join(f"{chart.x(at):.1f},{y(value or 0):.1f}" for at, value in part))
        for number, points in enumerate(shown.values(), 1)
        for is_known, part in groupby(points, lambda point: point[1] is not None)
        if is_known
    ]


def _dots(
    chart: Chart, shown: Mapping[str, Sequence[Point]], y: Callable[[float], float]
) -> list[Mark]:
    """Of as few as do not hide the line."""
    return [
        Mark(number, chart.x(at), y(value), 0, f"{_minute(at)} UTC: {chart.text(value)}")
        for number, points in enumerate(shown.values(), 1)
        if len(points) <= BINS
        for at, value in points
        if value is not None
    ]


def _binned(chart: Chart, points: Sequence[Point]) -> list[float]:
    binned: list[list[float]] = [[] for _ in range(BINS)]
    span = (chart.end - chart.begin) / BINS
    for at, value in points:
        if value is not None:
            binned[min(int((at - chart.begin) / span), BINS - 1)].append(value)
    return [sum(v) / (len(v) if chart.is_mean and v else 1) for v in binned]


def _bars(
    chart: Chart, binned: Sequence[Sequence[float]], y: Callable[[float], float]
) -> list[Mark]:
    """The series on top of each other, the points of a while as one bar."""
    span: timedelta = (chart.end - chart.begin) / BINS
    bars = []
    for n, values in enumerate(zip(*binned, strict=True)):
        at, top = chart.begin + n * span, 0.0
        for number, (name, value) in enumerate(zip(chart.series, values, strict=True), 1):
            if value:
                top += value
                said = f"from {_minute(at)} UTC: {name} {chart.text(value)}"
                bars.append(Mark(number, chart.x(at), y(top), y(top - value) - y(top), said))
    return bars


def _said(chart: Chart, shown: Mapping[str, Sequence[Point]]) -> str:
    parts = []
    for name, points in shown.items():
        values = [value for _, value in points if value is not None]
        if values:
            newest, most = chart.text(values[-1]), chart.text(max(values))
            parts.append(f"{name}: newest {newest}, most {most}")
    return f"{chart.title}. {'; '.join(parts) or 'no data'}"


def _legend(chart: Chart) -> list[tuple[str, str]]:
    keys = [(f"s{number}", name) for number, name in enumerate(chart.series, 1)]
    keys += [] if chart.limit is None else [("limit", f"limit {chart.text(chart.limit)}")]
    return keys + ([("mark", "compacted")] if chart.compacted else [])
