"""Charts as inline SVG: a line for each series, or bars that add up.

Two kinds of chart do not outweigh a library: the smallest that ships in a package is a megabyte
of script in each file. Colours are the page's own, by its style sheet, so light and dark follow.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from markupsafe import Markup, escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 480, 170, 72, 12, 24
BINS = 60
LIMIT_SHOWN = 3  # times the most that there was: a limit above it is only named
SPARK_WIDTH, SPARK_HEIGHT = 120, 24
SPARK_BARS = 10  # room for as many at least: one run is no block

Text = Callable[[float], str]
Point = tuple[datetime, float | None]


@dataclass(frozen=True)
class Chart:
    """Series by name over the same time, and what to draw beside them."""

    title: str
    series: Mapping[str, Sequence[Point]]
    text: Text  # of a value
    limit: float | None = None
    compacted: Sequence[datetime] = ()  # when the state was
    is_mean: bool = False  # bars: of a bin's points the mean, not the sum


@dataclass(frozen=True)
class _Frame:
    """What of time and value lies where."""

    begin: datetime
    end: datetime
    most: float

    def x(self, at: datetime) -> float:
        span = (self.end - self.begin).total_seconds() or 1.0
        return LEFT + (WIDTH - LEFT) * (at - self.begin).total_seconds() / span

    def y(self, value: float) -> float:
        inner = HEIGHT - TOP - BOTTOM
        return TOP + inner * (1 - value / (self.most or 1))

    def instant(self, at: datetime) -> str:
        """To the second where bars are of less than a minute."""
        seconds = ":%S" if self.end - self.begin < BINS * timedelta(minutes=1) else ""
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M{seconds}}"


def lines(chart: Chart, begin: datetime, end: datetime) -> Markup:
    """Each series as a line; where a value is missing it is broken."""
    shown = _within(chart, begin, end)
    values = [v for points in shown.values() for _, v in points if v is not None]
    frame = _Frame(begin, end, _most(values, chart.limit))
    drawn = (
        part
        for number, points in enumerate(shown.values(), 1)
        for part in _line(frame, points, number, text=chart.text)
    )
    return _figure(chart, frame, drawn, shown)


def bars(chart: Chart, begin: datetime, end: datetime) -> Markup:
    """The series on top of each other, the points of a while as one bar."""
    shown = _within(chart, begin, end)
    binned = {
        name: _binned(points, begin, end, is_mean=chart.is_mean) for name, points in shown.items()
    }
    totals = [sum(values) for values in zip(*binned.values(), strict=True)]
    frame = _Frame(begin, end, _most(totals, chart.limit))
    return _figure(chart, frame, _bars(frame, binned, chart.text), shown)


def spark(values: Sequence[int]) -> Markup:
    """Small bars without axes, the newest at the right; the least is a visible one."""
    most, wide = max(values, default=0) or 1, SPARK_WIDTH / max(len(values), SPARK_BARS)
    first = SPARK_WIDTH - wide * len(values)
    high = ((SPARK_HEIGHT - 1) * value / most + 1 for value in values)
    drawn = (
        _rect(first + n * wide, SPARK_HEIGHT, wide - 1, high=each, number=1)
        for n, each in enumerate(high)
    )
    said = f"rows of the last {len(values)} runs: newest {values[-1]:,}, most {max(values):,}"
    box = f"0 0 {SPARK_WIDTH} {SPARK_HEIGHT}"
    return _tag("svg", *drawn, class_="spark", role="img", aria_label=said, viewBox=box)


def _tag(name: str, *inner: Markup | str, **attributes: str | float) -> Markup:
    """An element; what comes from data is escaped."""
    given = Markup("").join(
        Markup(' {}="{}"').format(
            each.removesuffix("_").replace("_", "-"),
            f"{value:.1f}" if isinstance(value, float) else value,
        )
        for each, value in attributes.items()
    )
    within = Markup("").join(escape(part) for part in inner)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), given, within)  # noqa: S704 (ours)


def _most(values: Sequence[float], limit: float | None) -> float:
    """What the axis ends with: the limit, too, if it is near; else all would lie on the ground."""
    most = max(values, default=0.0)
    return max(most, limit) if limit is not None and limit <= LIMIT_SHOWN * most else most


def _within(chart: Chart, begin: datetime, end: datetime) -> dict[str, list[Point]]:
    return {
        name: [point for point in points if begin <= point[0] <= end]
        for name, points in chart.series.items()
    }


def _line(frame: _Frame, points: Sequence[Point], number: int, text: Text) -> Iterator[Markup]:
    for is_known, part in groupby(points, lambda point: point[1] is not None):
        if is_known:
            path = " ".join(f"{frame.x(at):.1f},{frame.y(value or 0):.1f}" for at, value in part)
            yield _tag("polyline", class_=f"line s{number}", points=path)
    known = [(at, value) for at, value in points if value is not None]
    if len(known) <= BINS:  # of more, they would hide the line
        for at, value in known:
            said = _tag("title", f"{frame.instant(at)} UTC: {text(value)}")
            yield _tag("circle", said, class_=f"s{number}", cx=frame.x(at), cy=frame.y(value), r=2)


def _binned(points: Sequence[Point], begin: datetime, end: datetime, is_mean: bool) -> list[float]:
    binned: list[list[float]] = [[] for _ in range(BINS)]
    span = (end - begin) / BINS
    for at, value in points:
        if value is not None:
            binned[min(int((at - begin) / span), BINS - 1)].append(value)
    return [sum(v) / (len(v) if is_mean and v else 1) for v in binned]


def _bars(frame: _Frame, binned: Mapping[str, Sequence[float]], text: Text) -> Iterator[Markup]:
    span: timedelta = (frame.end - frame.begin) / BINS
    wide = (WIDTH - LEFT) / BINS - 1
    for n, values in enumerate(zip(*binned.values(), strict=True)):
        at, below = frame.begin + n * span, 0.0
        for number, (name, value) in enumerate(zip(binned, values, strict=True), 1):
            if value:
                said = _tag("title", f"from {frame.instant(at)} UTC: {name} {text(value)}")
                high = frame.y(below) - frame.y(below + value)
                yield _rect(frame.x(at), frame.y(below), wide, said, high=high, number=number)
                below += value


def _rect(x: float, bottom: float, wide: float, *said: Markup, high: float, number: int) -> Markup:
    size = {"width": max(wide, 0.5), "height": high}
    return _tag("rect", *said, class_=f"s{number}", x=x, y=bottom - high, **size)


def _figure(
    chart: Chart, frame: _Frame, drawn: Iterable[Markup], shown: Mapping[str, Sequence[Point]]
) -> Markup:
    caption = _tag("figcaption", chart.title, _tag("span", *_legend(chart), class_="legend"))
    parts = (*_axes(frame, chart.text), *drawn, *_beside(chart, frame))
    said, box = _said(chart, shown), f"0 0 {WIDTH} {HEIGHT}"
    svg = _tag("svg", *parts, role="img", aria_label=said, viewBox=box)
    return _tag("figure", caption, svg, class_="chart")


def _said(chart: Chart, shown: Mapping[str, Sequence[Point]]) -> str:
    """The chart in words, for who does not see it."""
    parts = []
    for name, points in shown.items():
        values = [value for _, value in points if value is not None]
        if values:
            newest, most = chart.text(values[-1]), chart.text(max(values))
            parts.append(f"{name}: newest {newest}, most {most}")
    return f"{chart.title}. {'; '.join(parts) or 'no data'}"


def _legend(chart: Chart) -> Iterator[Markup]:
    keys = [(f"s{number}", name) for number, name in enumerate(chart.series, 1)]
    keys += [] if chart.limit is None else [("limit", f"limit {chart.text(chart.limit)}")]
    keys += [("mark", "compacted")] if chart.compacted else []
    return (_tag("span", _tag("i", class_=kind), text) for kind, text in keys)


def _axes(frame: _Frame, text: Text) -> Iterator[Markup]:
    # Of a small number, the half may read as one of the others.
    rows = {text(share * frame.most): frame.y(share * frame.most) for share in (0.5, 0.0, 1.0)}
    for label, y in rows.items():
        yield _across(y, "grid")
        yield _tag("text", label, class_="y", x=LEFT - 6, y=y + 4)
    middle = frame.begin + (frame.end - frame.begin) / 2
    for at, anchor in ((frame.begin, "start"), (middle, "middle"), (frame.end, "end")):
        yield _tag("text", frame.instant(at), x=frame.x(at), y=HEIGHT - 6, text_anchor=anchor)


def _across(y: float, kind: str) -> Markup:
    return _tag("line", class_=kind, x1=LEFT, x2=WIDTH, y1=y, y2=y)


def _beside(chart: Chart, frame: _Frame) -> Iterator[Markup]:
    """The limit, and when the state was compacted."""
    if chart.limit is not None and chart.limit <= frame.most:
        yield _across(frame.y(chart.limit), "limit")
    for at in chart.compacted:
        if frame.begin <= at <= frame.end:
            x, said = frame.x(at), _tag("title", f"compacted {frame.instant(at)} UTC")
            yield _tag("line", said, class_="mark", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM)
