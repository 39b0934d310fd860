"""What shows how all goes: a page of all streams, or of one, as a file; figures for a monitor."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from include.cli.app import DONE, FAILED, AnyStreamArgument, LakeOption, MistakeError, command
from include.lake.paths import Lake
from include.page.declared import declared_here
from include.page.metrics import metrics_text
from include.page.overview import WINDOW_DAYS, Overview, read_overview
from include.page.render import overview_html, stream_html
from include.page.shown_time import MOST_DAYS, ShownTime, asked_time
from include.page.stream_figures import read_stream
from include.registry import stream_named
from include.spark.local_jobs import say
from include.text_table import printable

PANEL = "Run"


@command("report", "report user_counts --to counts.html", PANEL)
def report(
    lake: LakeOption,
    name: AnyStreamArgument = None,
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", dir_okay=False, help="Written anew.")
    ] = Path("report.html"),
    days: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_DAYS,
            show_default=str(WINDOW_DAYS),
            help="Of a stream: how far back it is shown.",
        ),
    ] = None,
    until: Annotated[
        str,
        typer.Option(metavar="DATE", help="Of a stream: its days before it, not those up to now."),
    ] = "",
) -> int:
    """Write a page of all streams, or of one through time, as one HTML file."""
    now = datetime.now(UTC)
    time = asked_time(now, days, until)
    if name is None and (until or days is not None):
        raise MistakeError("--until and --days are of one stream: name it", subject="--until")
    if not to.parent.is_dir():
        raise MistakeError(f"--to {to}: there is no folder {to.parent}", subject="--to")
    html, trouble = _all(lake) if name is None else _one(lake, name, now, time)
    to.write_text(html, encoding="utf-8")
    say(str(to))
    for text in trouble:
        say(text)
    return FAILED if trouble else DONE


def _all(lake: Lake) -> tuple[str, list[str]]:
    overview = _overview(lake)
    return overview_html(overview), _troubles(overview)


def _overview(lake: Lake) -> Overview:
    known = declared_here()
    return read_overview(lake, known.streams, wrong=known.wrong)


def _troubles(overview: Overview) -> list[str]:
    lines = [f"{line.stream}: {line.trouble}" for line in overview.lines if line.trouble]
    if overview.reason is not None:
        lines = [f"{overview.lake} cannot be read: {overview.reason}"]
    return [*overview.wrong, *lines]


def _one(lake: Lake, name: str, now: datetime, time: ShownTime) -> tuple[str, list[str]]:
    figures = read_stream(lake, stream_named(name), now, *time)
    own = [] if figures.line.trouble is None else [figures.line.trouble]
    return stream_html(figures), [*own, *figures.troubles.values()]


@command("metrics", "metrics > stateful.prom", PANEL)
def metrics(lake: LakeOption) -> int:
    """Print the figures of all streams in Prometheus' text format."""
    overview = _overview(lake)
    say(metrics_text(overview).removesuffix("\n"))
    troubles = _troubles(overview)
    for text in troubles:
        sys.stderr.write(printable(f"{text}\n"))
    return FAILED if troubles else DONE
