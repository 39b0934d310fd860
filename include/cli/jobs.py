"""Commands that run streams and show how they go: jobs, pages, figures."""

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from include import run_local
from include.cli.app import (
    DONE,
    FAILED,
    AnyLakeOption,
    AnyStreamArgument,
    ApplyOption,
    DryRunOption,
    JsonOption,
    LakeOption,
    SourceArgument,
    StreamArgument,
    command,
    planned,
    show_json,
)
from include.ingest.from_scratch import move_source_aside, plan_from_scratch
from include.ingest.origin import accept_loss, plan_loss
from include.lake.errors import wrong_argument
from include.lake.lease import hold_lease
from include.lake.paths import Lake, made_lake
from include.observe.explain import KEY_DAYS, key_text, read_key
from include.observe.metrics import metrics_text
from include.observe.stream_line import (
    Overview,
    open_losses,
    read_overview,
    record_accepted,
    run_report,
)
from include.page.declared import declared_here
from include.page.render import overview_html, stream_html
from include.page.stream_figures import DAY, MOST_DAYS, read_stream
from include.registry import all_streams, stream_named
from include.settings import Source
from include.spark.submit import say
from include.stream.status_report import told_of
from include.text_table import printable

PANEL = "Run"


@command("run", "run --lake /data/lake --port 8081", PANEL)
def run(
    root: AnyLakeOption,
    port: Annotated[
        int, typer.Option(envvar="PORT", min=1, max=65_535, help="Of Airflow's UI and API.")
    ] = 8080,
    is_once: Annotated[
        bool, typer.Option("--once", help="End after the first successful runs.")
    ] = False,
) -> int:
    """Start Airflow, run every stream, show the results, serve until Ctrl-C."""
    # Here: it brings SQLAlchemy in, which is a fifth of the time of a command that finds nothing new.
    from include.airflow import local_airflow

    return local_airflow.serve(made_lake(root), port, once=is_once)


@command("stream", "stream user_counts", PANEL)
def run_stream(stream: StreamArgument, lake: LakeOption) -> int:
    """Ingest and drain one stream once, without Airflow; care for its state, show its table."""
    began = datetime.now(UTC)
    if code := run_local.run_stream(lake, stream):
        return code
    if report := run_report(lake, stream, since=began, now=datetime.now(UTC)):
        say(report)
    if lake.is_delta_table(lake.table(stream.name)):
        status, told = told_of(lake, stream)
        if told["wrong"] or told["distrust"]:  # also where nothing ran: the function may be another
            say(status)
    return DONE


@command("ingest", "ingest user_events", PANEL)
def ingest(
    source: SourceArgument,
    lake: LakeOption,
    is_accepting: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Go on behind what a topic or table has lost, and close its findings.",
        ),
    ] = False,
    is_from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="Move bronze, quarantine and ingest log aside, and ingest all anew.",
        ),
    ] = False,
    is_applied: ApplyOption = False,
) -> int:
    """Take what has come for a source into bronze. With --accept-loss or --from-scratch: the plan, or do it."""
    if is_accepting and is_from_scratch:
        raise wrong_argument("--accept-loss", "--from-scratch takes in all that is not lost")
    if is_from_scratch:
        plan = plan_from_scratch(lake, source)
        return planned(plan, is_applied, lambda: _ingest_anew(lake, source))
    if is_accepting:
        return _accept_loss(lake, source, is_applied)
    if is_applied:
        raise wrong_argument(
            "--apply",
            "--apply goes with --accept-loss or --from-scratch: without, rows are taken in",
        )
    return run_local.ingest(lake, source)


def _ingest_anew(lake: Lake, source: Source) -> int:
    move_source_aside(lake, source)
    return run_local.ingest(lake, source)


def _accept_loss(lake: Lake, source: Source, is_applied: bool) -> int:
    with hold_lease(lake, f"ingest-{source.name}"):
        loss = plan_loss(lake, source)
        if loss is not None:
            return planned(str(loss), is_applied, lambda: accept_loss(lake, source, loss))
        lost = open_losses(lake, source.name)
        if not lost:
            say(f"nothing that {source.name} has not taken is lost")
            return 0
        text = "\n".join(f"{row['found_at']:%F %R} UTC {row['detail']}" for row in lost)
        return planned(text, is_applied, lambda: record_accepted(lake, source.name))


@command("care", "care user_counts --dry-run", PANEL)
def care(
    lake: LakeOption,
    name: AnyStreamArgument = None,
    is_dry_run: DryRunOption = False,
    is_compacted: Annotated[
        bool, typer.Option("--compact", help="Compact, whatever would be gained.")
    ] = False,
) -> int:
    """Check the checkpoint of a stream, or of each; compact and tune its state. 1 when a check found an error."""
    streams = all_streams() if name is None else (stream_named(name),)
    codes = [run_local.care(lake, stream, is_dry_run, is_compacted) for stream in streams]
    return max(codes, default=0, key=abs)


@command("inspect", "inspect user_sessions --json", PANEL)
def inspect(stream: StreamArgument, lake: LakeOption, is_json: JsonOption = False) -> int:
    """Show what the state of a stream holds: keys, bytes, ages, timeouts, skew."""
    return run_local.inspect_state(lake, stream, is_json)


@command("explain", "explain user_counts alice --json", PANEL)
def explain(
    stream: StreamArgument,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A text as it is; any other key as JSON.")
    ],
    lake: LakeOption,
    days: Annotated[
        int, typer.Option(min=1, max=MOST_DAYS, help="How far back it is looked at.")
    ] = KEY_DAYS,
    is_json: JsonOption = False,
) -> int:
    """Show the state of a key, its timeouts and events, and why each of its rows was emitted."""
    figures = read_key(lake, stream, key, now=datetime.now(UTC), days=days)
    if is_json:
        show_json(asdict(figures))
    else:
        say(key_text(figures))
    return int(figures.failure is not None)


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
            show_default="since its first run",
            help="Of a stream: how far back it is shown.",
        ),
    ] = None,
) -> int:
    """Write a page of all streams, or of one through time, as one HTML file."""
    now = datetime.now(UTC)
    if name is None and days is not None:
        raise wrong_argument("--days", "--days is of one stream: name it")
    if name is None:
        overview = _overview(lake)
        html, unread = overview_html(overview), overview.unread
    else:
        figures = read_stream(lake, stream_named(name), now, None if days is None else days * DAY)
        html, unread = stream_html(figures), figures.unread
    to.write_text(html, encoding="utf-8")
    say("\n".join([str(to), *unread]))
    return FAILED if unread else DONE


def _overview(lake: Lake) -> Overview:
    known = declared_here()
    return read_overview(lake, known.streams, wrong=known.wrong)


@command("metrics", "metrics > stateful.prom", PANEL)
def metrics(lake: LakeOption) -> int:
    """Print the figures of all streams in Prometheus' text format."""
    overview = _overview(lake)
    say(metrics_text(overview).removesuffix("\n"))
    sys.stderr.writelines(printable(f"{text}\n") for text in overview.unread)
    return FAILED if overview.unread else DONE
