"""The figures as HTML: one file that asks for nothing else, in the colours of whoever reads it.

By Jinja, which Airflow brings: it escapes all that comes from data.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from include.coverage.findings import spans_text
from include.page.backfill_form import BackfillForm
from include.page.charts import Chart, Point, bars, lines, spark
from include.page.key_figures import KeyFigures
from include.page.overview import NOT_RIGHT, WINDOW_DAYS, WORDS, Overview, days_text
from include.page.stream_figures import PARTS, SizePoint, StreamFigures, moves
from include.text_table import bytes_text, span_text

TEMPLATES = Path(__file__).parent / "templates"
SHOWN_RUNS = 50
SHOWN = 20

Link = Callable[[str], str]


def overview_html(overview: Overview, link: Link | None = None) -> str:
    """The page of all streams; `link` gives the address of a stream's page, if there is one."""
    return _template("overview.html").render(
        overview=overview, link=link, window_days=WINDOW_DAYS, words=WORDS
    )


def stream_html(figures: StreamFigures, dag_id: str | None = None) -> str:
    """The page of a stream; in Airflow that of `dag_id`, with links to the others, and to other times:
    a file has nobody to ask for these."""
    return _template("stream.html").render(
        f=figures,
        dag_id=dag_id,
        wrong_dates=_wrong_dates(figures),
        charts=list(_charts(figures)),
        runs=list(reversed(figures.runs))[:SHOWN_RUNS],
        wrong=spans_text(figures.wrong),
        moves=dict(moves(figures.time, figures.now)) if dag_id else {},
        words=WORDS,
        shown=SHOWN,
    )


def key_html(figures: KeyFigures) -> str:
    """The page of a key, as an address below that of its stream's Dag."""
    return _template("key.html").render(f=figures, shown=SHOWN)


def backfill_html(form: BackfillForm) -> str:
    """The page of a backfill that is not made yet, as an address below that of its Dag."""
    return _template("backfill.html").render(form=form, shown=SHOWN_RUNS)


def message_html(text: str) -> str:
    """A page that says why there is no other."""
    return _template("message.html").render(text=text)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "coded": _coded,
        "number": _number,
        "bytes": _bytes,
        "instant": _instant,
        "minute": _minute,
        "span": _span,
        "seconds": lambda at: 0 if at is None else int(at.timestamp()),
    }
    environment.globals |= {"spark": spark, "days_text": days_text}
    return environment


def _coded(text: str) -> Markup:
    """What stands between `backticks` as code."""
    parts = text.split("`")
    marked = (
        Markup("<code>{}</code>").format(p) if n % 2 else escape(p) for n, p in enumerate(parts)
    )
    return Markup("").join(marked)


def _wrong_dates(figures: StreamFigures) -> dict[str, str]:
    """From the first day that is not right until after the last; none where all are."""
    wrong = [day.date for day in figures.days if day.status in NOT_RIGHT]
    if not wrong:
        return {}
    return {"from": f"{wrong[0]}", "until": f"{wrong[-1] + timedelta(days=1)}"}


def _template(name: str) -> Template:
    return _environment().get_template(name)


def _charts(f: StreamFigures) -> Iterator[Markup]:
    for draw, chart in _wanted(f):
        yield draw(chart, f.begin, f.end)


def _wanted(f: StreamFigures) -> Iterator[tuple[Callable[..., Markup], Chart]]:
    def runs(name: str) -> list[Point]:
        return [(run.ended_at, getattr(run, name)) for run in f.runs]

    rows = {"folded": runs("rows_folded"), "late": runs("rows_late")}
    yield bars, Chart("Rows read", rows, _number)
    yield bars, Chart("Rows written", {"rows out": runs("rows_out")}, _number)
    yield lines, Chart("Lag of the table after each run", {"lag": runs("lag_seconds")}, span_text)
    pending = {"pending": runs("rows_pending")}
    yield lines, Chart("Rows not yet settled", pending, _number, limit=f.limits["pending_rows"])
    parts = {"JVM start": runs("jvm_start_seconds")}
    parts |= {part: [(run.ended_at, run.parts[part]) for run in f.runs] for part in PARTS}
    yield bars, Chart("Seconds of a run (mean)", parts, span_text, is_mean=True)
    memory = {"JVM and Python": runs("rss_bytes")}
    yield lines, Chart("Most memory of a run", memory, bytes_text, limit=f.limits["rss_bytes"])
    yield from _of_checkpoint(f)
    fullest = {"fullest bucket of a batch": runs("bucket_skew")}
    yield lines, Chart("Rows of a bucket, in times of the mean", fullest, _times)
    keys = [(savepoint.until, savepoint.keys) for savepoint in reversed(f.savepoints)]
    yield lines, Chart("Keys, at savepoints", {"keys": keys}, _number)


def _of_checkpoint(f: StreamFigures) -> Iterator[tuple[Callable[..., Markup], Chart]]:
    compacted = [s.measured_at for s in f.sizes if s.occasion == "after_compaction"]

    def sizes(value: Callable[[SizePoint], float | None]) -> list[Point]:
        return [(size.measured_at, value(size)) for size in f.sizes]

    names = {name for size in f.sizes for name in size.bytes_by_part}
    by_part = {
        name: sizes(lambda size, name=name: size.bytes_by_part.get(name))  # type: ignore[misc]
        for name in sorted(names, key=lambda name: (name != "state", str(name)))
    }
    for title, series, text, limit in (
        ("Checkpoint by part", by_part, bytes_text, "checkpoint_bytes"),
        ("Checkpoint files", {"files": sizes(lambda s: s.files)}, _number, "checkpoint_files"),
        (
            "Change logs that a start replays",
            {"logs": sizes(lambda size: size.replay_versions)},
            _number,
            "replay_versions",
        ),
    ):
        yield lines, Chart(title, series, text, limit=f.limits[limit], compacted=compacted)
    skew = {"largest": sizes(lambda size: size.skew)}
    yield lines, Chart("State partition, in times of the median", skew, _times, f.limits["skew"])


def _times(value: float) -> str:
    return f"{value:.2f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    return "" if value is None else bytes_text(value)


def _instant(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _minute(at: datetime | None) -> str:
    return _instant(at)[: -len(":00")]


def _span(span: timedelta | None) -> str:
    return "" if span is None else span_text(span.total_seconds())
