"""Charts as inline SVG: a line for each series, or bars that add up.

Two kinds of chart do not outweigh a library: the smallest that ships in a package is a megabyte
of script in each file. Colours are the page's own, by its style sheet, so light and dark follow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

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

    def instant(self, at: datetime) -> str:
        """To the second where bars are of less than a minute."""
        seconds = ":%S" if self.end - self.begin < BINS * timedelta(minutes=1) else ""
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M{seconds}}"

    def y(self, value: float) -> float:
        inner = HEIGHT - TOP - BOTTOM
        return TOP + inner * (1 - value / (self.most or 1))


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
    return _figure(chart, frame, Markup("").join(drawn), said=_said(chart, shown))


def bars(chart: Chart, begin: datetime, end: datetime) -> Markup:
    """The series on top of each other, the points of a while as one bar."""
    shown = _within(chart, begin, end)
    binned = [_binned(points, begin, end, is_mean=chart.is_mean) for points in shown.values()]
    totals = [sum(values) for values in zip(*binned, strict=True)]
    frame = _Frame(begin, end, _most(totals, chart.limit))
    drawn = Markup("").join(_bars(frame, binned, list(shown), text=chart.text))
    return _figure(chart, frame, drawn, said=_said(chart, shown))


def spark(values: Sequence[int]) -> Markup:
    """Small bars without axes, the newest at the right; the least is a visible one."""
    most, wide = max(values, default=0) or 1, SPARK_WIDTH / max(len(values), SPARK_BARS)
    first = SPARK_WIDTH - wide * len(values)
    drawn = Markup("").join(
        _rect(
            first + n * wide,
            SPARK_HEIGHT,
            wide - 1,
            high=(SPARK_HEIGHT - 1) * value / most + 1,
            number=1,
            said="",
        )
        for n, value in enumerate(values)
    )
    said = f"rows of the last {len(values)} runs: newest {values[-1]:,}, most {max(values):,}"
    return Markup(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {} {}">{}</svg>'
    ).format(said, SPARK_WIDTH, SPARK_HEIGHT, drawn)


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
    for part in _unbroken(points):
        path = " ".join(f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in part)
        yield Markup('<polyline class="line s{}" points="{}"/>').format(number, path)
    known = [(at, value) for at, value in points if value is not None]
    if len(known) <= BINS:  # of more, they would hide the line
        yield from (_dot(frame, at, value, number=number, text=text) for at, value in known)


def _unbroken(points: Sequence[Point]) -> Iterator[list[tuple[datetime, float]]]:
    part: list[tuple[datetime, float]] = []
    for at, value in points:
        if value is not None:
            part.append((at, value))
        elif part:
            yield part
            part = []
    if part:
        yield part


def _dot(frame: _Frame, at: datetime, value: float, number: int, text: Text) -> Markup:
    said = f"{frame.instant(at)} UTC: {text(value)}"
    return Markup(
        '<circle class="s{}" cx="{:.1f}" cy="{:.1f}" r="2"><title>{}</title></circle>'
    ).format(number, frame.x(at), frame.y(value), said)


def _binned(points: Sequence[Point], begin: datetime, end: datetime, is_mean: bool) -> list[float]:
    binned: list[list[float]] = [[] for _ in range(BINS)]
    span = (end - begin) / BINS
    for at, value in points:
        if value is not None:
            binned[min(int((at - begin) / span), BINS - 1)].append(value)
    return [sum(v) / (len(v) if is_mean and v else 1) for v in binned]


def _bars(
    frame: _Frame, binned: Sequence[Sequence[float]], names: Sequence[str], text: Text
) -> Iterator[Markup]:
    span: timedelta = (frame.end - frame.begin) / BINS
    wide = (WIDTH - LEFT) / BINS - 1
    for n, values in enumerate(zip(*binned, strict=True)):
        at, below = frame.begin + n * span, 0.0
        for number, (name, value) in enumerate(zip(names, values, strict=True), 1):
            if value:
                said = f"from {frame.instant(at)} UTC: {name} {text(value)}"
                high = frame.y(below) - frame.y(below + value)
                yield _rect(frame.x(at), frame.y(below), wide, high=high, number=number, said=said)
                below += value


def _rect(x: float, bottom: float, wide: float, high: float, number: int, said: str) -> Markup:
    title = Markup("<title>{}</title>").format(said) if said else ""
    return Markup(
        '<rect class="s{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">{}</rect>'
    ).format(number, x, bottom - high, max(wide, 0.5), high, title)


def _said(chart: Chart, shown: Mapping[str, Sequence[Point]]) -> str:
    """The chart in words, for who does not see it."""
    parts = []
    for name, points in shown.items():
        values = [value for _, value in points if value is not None]
        if values:
            newest, most = chart.text(values[-1]), chart.text(max(values))
            parts.append(f"{name}: newest {newest}, most {most}")
    return f"{chart.title}. {'; '.join(parts) or 'no data'}"


def _figure(chart: Chart, frame: _Frame, drawn: Markup, said: str) -> Markup:
    keys = Markup("").join(_legend(chart))
    return Markup(
        '<figure class="chart"><figcaption>{}<span class="legend">{}</span></figcaption>'
        '<svg role="img" aria-label="{}" viewBox="0 0 {} {}">{}{}{}</svg></figure>'
    ).format(
        chart.title,
        keys,
        said,
        WIDTH,
        HEIGHT,
        _axes(frame, chart.text),
        drawn,
        _extra(chart, frame),
    )


def _legend(chart: Chart) -> Iterator[Markup]:
    for number, name in enumerate(chart.series, 1):
        yield Markup('<span><i class="s{}"></i>{}</span>').format(number, name)
    if chart.limit is not None:
        yield Markup('<span><i class="limit"></i>limit {}</span>').format(chart.text(chart.limit))
    if chart.compacted:
        yield Markup('<span><i class="mark"></i>compacted</span>')


def _axes(frame: _Frame, text: Text) -> Markup:
    # Of a small number, the half may read as one of the others.
    rows = {text(share * frame.most): frame.y(share * frame.most) for share in (0.5, 0.0, 1.0)}
    drawn = [
        Markup('<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>').format(
            LEFT, WIDTH, y
        )
        + Markup('<text class="y" x="{}" y="{:.1f}">{}</text>').format(LEFT - 6, y + 4, label)
        for label, y in rows.items()
    ]
    middle = frame.begin + (frame.end - frame.begin) / 2
    for at, anchor in ((frame.begin, "start"), (middle, "middle"), (frame.end, "end")):
        drawn.append(
            Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
                frame.x(at), HEIGHT - 6, anchor, frame.instant(at)
            )
        )
    return Markup("").join(drawn)


def _extra(chart: Chart, frame: _Frame) -> Markup:
    drawn = []
    if chart.limit is not None and chart.limit <= frame.most:
        drawn.append(
            Markup('<line class="limit" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>').format(
                LEFT, WIDTH, frame.y(chart.limit)
            )
        )
    for at in chart.compacted:
        if frame.begin <= at <= frame.end:
            drawn.append(
                Markup(
                    '<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"><title>compacted {3} UTC</title></line>'
                ).format(frame.x(at), TOP, HEIGHT - BOTTOM, frame.instant(at))
            )
    return Markup("").join(drawn)
