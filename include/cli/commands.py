"""The commands that run streams, show their figures, and change state and tables."""

import logging
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from include import run_local
from include.amend.erase_rows import ERASED_KEY, erased_key
from include.amend.plans import plan_erasure, plan_set_watermark
from include.cli.app import (
    DONE,
    FAILED,
    AnyLakeOption,
    AnyStreamArgument,
    ApplyOption,
    DownstreamOption,
    DryRunOption,
    FromArgument,
    JsonOption,
    LakeOption,
    SourceArgument,
    StartOption,
    StreamArgument,
    ToOption,
    UntilArgument,
    UntilOption,
    command,
    planned,
    show_json,
)
from include.ingest.source_connector import (
    accept_loss,
    move_source_aside,
    plan_from_scratch,
    plan_loss,
)
from include.lake.errors import wrong_argument
from include.lake.lease import hold_lease
from include.lake.paths import Lake, made_lake
from include.maintain.table_maintenance import maintain_tables
from include.observe.explain import KEY_DAYS, key_text, read_key
from include.observe.stream_line import (
    Overview,
    metrics_text,
    open_losses,
    read_overview,
    record_accepted,
    run_report,
)
from include.page.render import overview_html, stream_html
from include.page.stream_figures import DAY, MOST_DAYS, read_stream
from include.registry import all_sources, all_streams, declared, source_named, stream_named
from include.sample.sample_data import Options, land_samples, sample_start
from include.settings import Source, Stream
from include.spark.submit import run_job, say
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions, plan_rebuild
from include.stream.restate_plan import has_nothing_to_change, plan_restate
from include.stream.status_report import status_of, status_of_each
from include.stream.stream_status import stream_status
from include.text_table import printable

RUN, STATE, TABLES = "Run", "State", "Tables"


@command("run", "run --lake /data/lake --port 8081", RUN)
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
    # Imported here: SQLAlchemy is a fifth of the time of a short command.
    from include.airflow import local_airflow

    return local_airflow.serve(made_lake(root), port, once=is_once)


@command("stream", "stream user_counts", RUN)
def run_stream(stream: StreamArgument, lake: LakeOption) -> int:
    """Ingest, run one stream once without Airflow, maintain its state, and show its table."""
    began = datetime.now(UTC)
    if code := run_local.run_stream(lake, stream):
        return code
    if report := run_report(lake, stream, since=began, now=datetime.now(UTC)):
        say(report)
    if lake.is_delta_table(lake.table(stream.name)):
        status, record = status_of(stream_status(lake, stream))
        # Even if nothing ran: the function may have changed.
        if record["wrong"] or record["mismatch"]:
            say(status)
    return DONE


@command("ingest", "ingest user_events", RUN)
def ingest(
    source: SourceArgument,
    lake: LakeOption,
    is_accepting: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Go on after what a topic or table has lost, and close the findings on it.",
        ),
    ] = False,
    is_from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="Move bronze, quarantine and ingest log aside, and ingest everything again.",
        ),
    ] = False,
    is_applied: ApplyOption = False,
) -> int:
    """Ingest what has landed for a source; with --accept-loss or --from-scratch: show the plan, or --apply it."""
    if is_from_scratch:
        plan = plan_from_scratch(lake, source)
        return planned(plan, is_applied, lambda: _ingest_from_scratch(lake, source))
    if is_accepting:
        return _accept_loss(lake, source, is_applied)
    return run_local.ingest(lake, source)


def _ingest_from_scratch(lake: Lake, source: Source) -> int:
    move_source_aside(lake, source)
    return run_local.ingest(lake, source)


def _accept_loss(lake: Lake, source: Source, is_applied: bool) -> int:
    with hold_lease(lake, f"ingest-{source.name}"):
        loss = plan_loss(lake, source)
        if loss is not None:
            return planned(str(loss), is_applied, lambda: accept_loss(lake, source, loss))
        lost = open_losses(lake, source.name)
        if not lost:
            say(f"no input of {source.name} is lost")
            return 0
        text = "\n".join(f"{row['found_at']:%F %R} UTC {row['detail']}" for row in lost)
        return planned(text, is_applied, lambda: record_accepted(lake, source.name))


@command("maintain", "maintain user_counts --dry-run", RUN)
def maintain(
    lake: LakeOption,
    name: AnyStreamArgument = None,
    is_dry_run: DryRunOption = False,
    is_compacted: Annotated[
        bool, typer.Option("--compact", help="Compact even if little is gained.")
    ] = False,
) -> int:
    """Check, compact and tune the state of a stream; without NAME of all, and maintain the tables. Exit code 1 when a check finds an error."""
    streams = all_streams() if name is None else (stream_named(name),)
    codes = [run_local.maintain(lake, stream, is_dry_run, is_compacted) for stream in streams]
    if name is None:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("table_maintenance").setLevel(logging.INFO)
        codes.append(maintain_tables(lake, is_dry_run))
    return max(codes, default=0, key=abs)


@command("inspect", "inspect user_sessions --json", RUN)
def inspect(stream: StreamArgument, lake: LakeOption, is_json: JsonOption = False) -> int:
    """Show the state of a stream in figures: keys, bytes, ages, timeouts, skew."""
    return run_local.inspect_state(lake, stream, is_json)


@command("explain", "explain user_counts alice --json", RUN)
def explain(
    stream: StreamArgument,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A string as it is; any other key as JSON.")
    ],
    lake: LakeOption,
    days: Annotated[
        int, typer.Option(min=1, max=MOST_DAYS, help="Days back from where it is complete.")
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


@command("report", "report user_counts --to counts.html", RUN)
def report(
    lake: LakeOption,
    name: AnyStreamArgument = None,
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", dir_okay=False, help="Overwritten.")
    ] = Path("report.html"),
    days: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_DAYS,
            show_default="since its first run",
            help="Of a stream: days back from now.",
        ),
    ] = None,
) -> int:
    """Write the page of all streams, or of one, as one HTML file."""
    now = datetime.now(UTC)
    if name is None and days is not None:
        raise wrong_argument("--days", "--days needs the NAME of a stream")
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
    known = declared()
    return read_overview(lake, known.streams, wrong=known.wrong)


@command("metrics", "metrics > stateful.prom", RUN)
def metrics(lake: LakeOption) -> int:
    """Print the figures of all streams in Prometheus' text format."""
    overview = _overview(lake)
    say(metrics_text(overview).removesuffix("\n"))
    sys.stderr.writelines(printable(f"{text}\n") for text in overview.unread)
    return FAILED if overview.unread else DONE


@command("savepoint", "savepoint user_counts", STATE)
def savepoint(stream: StreamArgument, lake: LakeOption) -> int:
    """Write a savepoint of the state of a stream."""
    return _run("write_savepoint", lake, stream, args=[])


@command("status", "status user_counts", STATE)
def status(lake: LakeOption, name: AnyStreamArgument = None, is_json: JsonOption = False) -> int:
    """Show until when the table of a stream, or of each, is complete, where it is right, and what mends it."""
    found = status_of_each(lake)
    if name is not None:
        found = iter([status_of(stream_status(lake, stream_named(name)))])
    texts, records = zip(*found, strict=True)
    if is_json:
        show_json(records if name is None else records[0])
    else:
        say("\n".join(texts))
    return 0


@command("restate", "restate device_signals 2026-11-20 2026-11-21", STATE)
def restate(
    stream: StreamArgument,
    start: FromArgument,
    until: UntilArgument,
    lake: LakeOption,
    is_downstream: DownstreamOption = False,
    is_dry_run: DryRunOption = False,
) -> int:
    """Restate an interval of a stream from bronze, late rows included."""
    say(plan_restate(open_stream(lake, stream), start, until).text())
    if is_downstream:
        say(run_local.downstream_plan(lake, stream))
    if is_dry_run:
        return DONE
    if is_downstream and has_nothing_to_change(lake, stream, start, until):
        return run_local.mend_downstream(lake, stream)
    interval = ["--from", start.isoformat(), "--until", until.isoformat()]
    code = _run("restate_interval", lake, stream, args=interval)
    return code if code or not is_downstream else run_local.mend_downstream(lake, stream)


@command("rebuild", "rebuild user_counts --buckets 100 --apply", STATE)
def rebuild(
    stream: StreamArgument,
    lake: LakeOption,
    until: UntilOption = None,
    buckets: Annotated[
        int | None, typer.Option(min=1, help="Of the new state; default: as now.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="State partitions; default: as now.")
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--full-refresh", help="From the beginning, without a savepoint.")
    ] = False,
    migrate_state: Annotated[
        bool, typer.Option("--migrate-state", help="From the old state, by migrate_state.")
    ] = False,
    forward: Annotated[
        bool,
        typer.Option("--forward", help="From a state of the former code, whose rows stay before."),
    ] = False,
    is_downstream: DownstreamOption = False,
    is_applied: ApplyOption = False,
) -> int:
    """Rebuild the state and table of a stream from bronze, late rows included: show the plan, or --apply it."""
    options = RebuildOptions(buckets, partitions, until, from_beginning, migrate_state, forward)
    args = ["--options", options.text()]
    plan = plan_rebuild(open_stream(lake, stream), options).text()
    if is_downstream:
        plan = f"{plan}\n{run_local.downstream_plan(lake, stream)}"

    def apply() -> int:
        code = _run("rebuild_stream", lake, stream, args=args)
        return code if code or not is_downstream else run_local.mend_downstream(lake, stream)

    return planned(plan, is_applied, apply)


@command("set-watermark", "set-watermark user_events --to 2026-11-20T10:00:00Z --apply", STATE)
def set_watermark(
    source: SourceArgument, lake: LakeOption, to: ToOption = None, is_applied: ApplyOption = False
) -> int:
    """Set the watermark of a source back, and rebuild its streams: show the plan, or --apply it."""
    wanted = [] if to is None else ["--to", to.isoformat()]
    args = ["--source", source.name, "--lake", lake.root, *wanted]
    text = plan_set_watermark(lake, source, to).text
    return planned(text, is_applied, lambda: run_job("set_watermark", args))


@command("erase", "erase user_counts alice --apply", STATE)
def erase(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A stream, or a source.")],
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="A stream's key, a JSON list if it is of several fields; of a source FIELD=VALUE. "
            "- reads it from the standard input.",
        ),
    ],
    lake: LakeOption,
    is_applied: ApplyOption = False,
) -> int:
    """Erase a key from all tables, states and landed files: show the plan, or --apply it."""
    erased = _key_of_stdin() if key == "-" else key
    plan = plan_erasure(lake, erased_key(name, erased)).text()
    os.environ[ERASED_KEY] = erased  # an argument would be in logs
    args = ["--name", name, "--lake", lake.root]
    return planned(plan, is_applied, lambda: run_job("erase_key", args))


def _key_of_stdin() -> str:
    """The whole input without the last line's end, as a key may have several lines."""
    try:
        text = sys.stdin.readline() if sys.stdin.isatty() else sys.stdin.read()
    except UnicodeDecodeError:
        raise wrong_argument("KEY", "the key on the standard input is no text in UTF-8") from None
    return text.removesuffix("\n")


def _run(job: str, lake: Lake, stream: Stream, args: list[str]) -> int:
    return run_job(job, ["--stream", stream.name, "--lake", lake.root, *args], stream)


@command("sample-data", "sample-data --events 2000 --late-share 0.05", TABLES)
def sample_data(
    root: AnyLakeOption,
    name: Annotated[str, typer.Option("--source", help="One source, or all.")] = "all",
    start: StartOption = None,
    seed: int = Options.seed,
    events: Annotated[int, typer.Option(min=0, help="Events of each source.")] = Options.events,
    late_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of rows that come hours late.")
    ] = Options.late_share,
) -> int:
    """Write sample input into the lake's landing folder; the same options give the same files."""
    first = start or sample_start()
    options = Options(start=first, seed=seed, events=events, late_share=late_share)
    sources = all_sources() if name == "all" else (source_named(name),)
    for line in land_samples(made_lake(root), sources, options):
        say(line)
    return 0


@command("reingest", "reingest signals fixed.jsonl", TABLES)
def reingest(
    source: SourceArgument,
    lake: LakeOption,
    corrections: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            exists=True,
            dir_okay=False,
            help='Corrected rows, {"quarantine_id": ..., "raw": ...} per line; without it all '
            "open rows are tried again.",
        ),
    ] = None,
) -> int:
    """Ingest open rows of the quarantine again, corrected or under the fields of now."""
    given = None if corrections is None else str(corrections)
    return run_local.reingest(lake, source.name, given)
