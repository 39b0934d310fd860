"""The pages as HTML: each is one file that loads nothing, light or dark as the reader's system is.

Jinja, which Airflow brings, escapes all that comes from data. Charts are inline SVG: the smallest
library for them would be a megabyte of script in each file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from include.catalogue import FIGURES
from include.lake.ops import Measured
from include.observe.explain import KeyFigures
from include.observe.stream_line import WINDOW_DAYS, WORDS, Overview, days_text
from include.page.stream_figures import PARTS, StreamFigures
from include.stream.stream_status import spans_text
from include.text_table import bytes_text, span_text, value_text

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 480, 170, 72, 12, 24
LIMIT_SHOWN = 3  # times the greatest value: a limit above that is only in the legend

Point = tuple[datetime, float | None]


@dataclass(frozen=True)
class Chart:
    """Series by name over the same time, with a limit and marks."""

    title: str
    series: Mapping[str, Sequence[Point]]
    text: Callable[[float], str]  # of a value
    begin: datetime
    end: datetime
    limit: float | None = None
    compacted: Sequence[datetime] = ()  # when the state was

    @cached_property
    def most(self) -> float:
        """The end of the axis: the greatest value, or the limit if that is near."""
        values = (value for points in self.series.values() for _, value in points)
        most = max((value for value in values if value is not None), default=0.0)
        is_near = self.limit is not None and self.limit <= LIMIT_SHOWN * most
        return max(most, self.limit or 0) if is_near else most

    def x(self, at: datetime) -> float:
        """The x of an instant."""
        span = (self.end - self.begin).total_seconds() or 1.0
        return LEFT + (WIDTH - LEFT) * (at - self.begin).total_seconds() / span

    def y(self, value: float) -> float:
        """The y of a value."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / (self.most or 1))

    @property
    def words(self) -> str:
        """The chart in words, for screen readers."""
        known = {n: [v for _, v in of if v is not None] for n, of in self.series.items()}
        newest = (f"{name}: newest {self.text(of[-1])}" for name, of in known.items() if of)
        return f"{self.title}. {'; '.join(newest) or 'no data'}"

    @property
    def legend(self) -> Iterator[tuple[str, str]]:
        """The CSS class and the name of each kind of mark."""
        yield from ((f"s{number}", name) for number, name in enumerate(self.series, 1))
        if self.limit is not None:
            yield "limit", f"limit {self.text(self.limit)}"
        if self.compacted:
            yield "mark", "compacted"

    @property
    def rows(self) -> dict[str, float]:
        """The y of each line of the grid by its text; half of a small number may have the same text."""
        return {self.text(most): self.y(most) for most in (0.5 * self.most, 0.0, self.most)}

    @property
    def ticks(self) -> Iterator[tuple[str, float, str]]:
        """The ticks of the time axis: text, x and text-anchor."""
        middle = self.begin + (self.end - self.begin) / 2
        for at, anchor in ((self.begin, "start"), (middle, "middle"), (self.end, "end")):
            yield minute(at), self.x(at), anchor

    @property
    def lines(self) -> Iterator[tuple[int, str]]:
        """Each series as polylines, interrupted where a value is missing."""
        for number, points in enumerate(self.series.values(), 1):
            for is_known, part in groupby(points, lambda point: point[1] is not None):
                if is_known:
                    at = [f"{self.x(at):.1f},{self.y(value or 0):.1f}" for at, value in part]
                    yield number, " ".join(at if len(at) > 1 else at * 2)  # of one a dot


def minute(at: datetime) -> str:
    """An instant of UTC, to the minute."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


TEMPLATES = Path(__file__).parent / "templates"
SHOWN_RUNS = 50
SHOWN = 20
SHOWN_STEPS = 200

Link = Callable[[str], str]


def overview_html(overview: Overview, link: Link | None = None) -> str:
    """The page of all streams; `link` maps a stream to the address of its page."""
    return _page("overview.html", overview=overview, link=link, days=WINDOW_DAYS, words=WORDS)


def stream_html(figures: StreamFigures, dag_id: str | None = None) -> str:
    """The page of a stream; with `dag_id`, in Airflow, it has links to other pages and times."""
    charts, runs = list(_charts(figures)), figures.runs[::-1][:SHOWN_RUNS]
    more = {"charts": charts, "runs": runs, "words": WORDS, "shown": SHOWN}
    return _page("stream.html", f=figures, dag_id=dag_id, **more)


def key_html(figures: KeyFigures) -> str:
    """The page of a key."""
    return _page("key.html", f=figures, shown=SHOWN, shown_steps=SHOWN_STEPS)


def message_html(text: str) -> str:
    """A page with an error."""
    return _page("message.html", text=text)


def _page(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[[Any], Any]] = {
        "coded": _coded,
        "number": _shown("{:,.0f}".format),
        "bytes": _shown(bytes_text),
        "instant": _shown(lambda at: f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"),
        "minute": _shown(minute),
        "span": _shown(lambda span: span_text(span.total_seconds())),
        "tenth": "{:.1f}".format,
        "value": value_text,
        "seconds": lambda at: 0 if at is None else int(at.timestamp()),
    }
    environment.filters |= filters
    environment.globals |= {"days_text": days_text, "spans_text": spans_text}
    return environment


def _shown(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """A filter that shows None as an empty text."""
    return lambda value: "" if value is None else text(value)


def _coded(text: str) -> Markup:
    """Text between `backticks` as <code>."""
    code, parts = Markup("<code>{}</code>").format, text.split("`")
    return Markup("").join(code(p) if n % 2 else escape(p) for n, p in enumerate(parts))


def _charts(f: StreamFigures) -> Iterator[Chart]:
    """The charts of a stream, with the units and limits of the catalogue."""
    compacted = [run["ended_at"] for run in f.runs if run["job"] == "compact_state"]

    def chart(title: str, figure: str, series: Mapping[str, Sequence[Point]], **more: Any) -> Chart:
        known = FIGURES[figure]
        limit = f.limits.get(known.limit)
        of_time = {n: [p for p in of if f.begin <= p[0] <= f.now] for n, of in series.items()}
        return Chart(title, of_time, known.text, f.begin, f.now, limit=limit, **more)

    def runs(name: str) -> list[Point]:
        return [(run["ended_at"], run[name]) for run in f.runs]

    def measured(value: Callable[[Measured], float | None]) -> list[Point]:
        return [(each.at, value(each)) for each in f.measured]

    read = {"folded": runs("rows_folded"), "late": runs("rows_late")}
    yield chart("Rows read", "rows", read)
    yield chart("Rows written", "rows", {"rows out": runs("rows_out")})
    yield chart("Lag of the table after each run", "until_lag", {"lag": runs("lag_seconds")})
    yield chart("Rows not yet complete", "rows_pending", {"pending": runs("rows_pending")})
    parts = {"JVM start": runs("jvm_start_seconds")}
    parts |= {part: [(run["ended_at"], run["parts"][part]) for run in f.runs] for part in PARTS}
    yield chart("Seconds of a run", "run_seconds", parts)
    yield chart("Most memory of a run", "rss_bytes", {"JVM and Python": runs("rss_bytes")})
    by_part = {"state": measured(attrgetter("state_bytes"))}
    for part in sorted({part for each in f.measured for part in each.bytes_of if "/" not in part}):
        by_part.setdefault(part, [(each.at, each.bytes_of.get(part)) for each in f.measured])
    yield chart("Checkpoint by part", "checkpoint_bytes", by_part, compacted=compacted)
    files = {"files": measured(attrgetter("files"))}
    yield chart("Checkpoint files", "files", files, compacted=compacted)
    logs = {"logs": measured(attrgetter("replay_versions"))}
    yield chart("Change logs that a start replays", "replay_versions", logs, compacted=compacted)
    skew = {"largest": measured(attrgetter("skew"))}
    yield chart("State partition, in times of the median", "skew", skew)
    fullest = {"fullest bucket of a batch": runs("bucket_skew")}
    yield chart("Rows of a bucket, in times of the mean", "bucket_skew", fullest)
    keys = [(savepoint.until, savepoint.keys) for savepoint in reversed(f.savepoints)]
    yield chart("Keys, at savepoints", "state_keys", {"keys": keys})
