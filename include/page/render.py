"""The figures as HTML: one file that asks for nothing else, in the colours of whoever reads it.

By Jinja, which Airflow brings: it escapes all that comes from data.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, timedelta
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from include.catalogue import FIGURES
from include.coverage.findings import spans_text
from include.observe.recorded import Row
from include.observe.stream_line import NOT_RIGHT, WINDOW_DAYS, WORDS, Overview, days_text
from include.page.backfill_form import BackfillForm
from include.page.charts import Chart, Point, minute
from include.page.key_figures import KeyFigures
from include.page.stream_figures import PARTS, StreamFigures
from include.text_table import bytes_text, span_text, value_text

TEMPLATES = Path(__file__).parent / "templates"
SHOWN_RUNS = 50
SHOWN = 20
SHOWN_STEPS = 200

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
        words=WORDS,
        shown=SHOWN,
    )


def key_html(figures: KeyFigures) -> str:
    """The page of a key, as an address below that of its stream's Dag."""
    return _template("key.html").render(f=figures, shown=SHOWN, shown_steps=SHOWN_STEPS)


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
    environment.globals |= {"days_text": days_text}
    return environment


def _shown(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """The text of a value; of None nothing."""
    return lambda value: "" if value is None else text(value)


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


def _charts(f: StreamFigures) -> Iterator[Chart]:
    """Figures through time; their units and limits are those of the catalogue."""
    compacted = [run["ended_at"] for run in f.runs if run["job"] == "compact_state"]

    def chart(title: str, figure: str, series: dict[str, list[Point]], **more: Any) -> Chart:
        known = FIGURES[figure]
        limit = f.limits.get(known.limit)
        return Chart(title, series, known.text, f.begin, f.now, limit=limit, **more)

    def runs(name: str) -> list[Point]:
        return [(run["ended_at"], run[name]) for run in f.runs]

    def sizes(value: Callable[[Row], float | None]) -> list[Point]:
        return [(size["measured_at"], value(size)) for size in f.sizes]

    read = {"folded": runs("rows_folded"), "late": runs("rows_late")}
    yield chart("Rows read", "rows", read)
    yield chart("Rows written", "rows", {"rows out": runs("rows_out")})
    yield chart("Lag of the table after each run", "until_lag", {"lag": runs("lag_seconds")})
    yield chart("Rows not yet settled", "rows_pending", {"pending": runs("rows_pending")})
    parts = {"JVM start": runs("jvm_start_seconds")}
    parts |= {part: [(run["ended_at"], run["parts"][part]) for run in f.runs] for part in PARTS}
    yield chart("Seconds of a run", "run_seconds", parts)
    yield chart("Most memory of a run", "rss_bytes", {"JVM and Python": runs("rss_bytes")})
    parts_of_all = {name for size in f.sizes for name in size["bytes_by_part"]}
    names = sorted(parts_of_all, key=lambda part: (part != "state", part))
    by_part = {name: sizes(lambda size, n=name: size["bytes_by_part"].get(n)) for name in names}  # type: ignore[misc]
    yield chart("Checkpoint by part", "checkpoint_bytes", by_part, compacted=compacted)
    files = {"files": sizes(itemgetter("files"))}
    yield chart("Checkpoint files", "files", files, compacted=compacted)
    logs = {"logs": sizes(itemgetter("replay_versions"))}
    yield chart("Change logs that a start replays", "replay_versions", logs, compacted=compacted)
    skew = {"largest": sizes(itemgetter("skew"))}
    yield chart("State partition, in times of the median", "skew", skew)
    fullest = {"fullest bucket of a batch": runs("bucket_skew")}
    yield chart("Rows of a bucket, in times of the mean", "bucket_skew", fullest)
    keys: list[Point] = [(savepoint.until, savepoint.keys) for savepoint in reversed(f.savepoints)]
    yield chart("Keys, at savepoints", "state_keys", {"keys": keys})
