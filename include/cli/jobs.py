"""What runs, and what shows how it goes: streams, their care, their state, the tables."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from include import run_local
from include.airflow import local_airflow
from include.care.check_checkpoint import check_checkpoint
from include.care.check_report import format_check
from include.cli.app import (
    AnyStreamArgument,
    DryRunOption,
    JsonOption,
    LakeOption,
    NewLakeOption,
    StreamArgument,
    command,
    show_json,
)
from include.lake.paths import made_lake
from include.page.key_figures import KEY_DAYS, read_key
from include.page.key_text import key_text
from include.page.shown_time import MOST_DAYS
from include.registry import all_streams, stream_named
from include.settings import Stream
from include.spark.local_jobs import say

PANEL = "Run"


@command("setup", "setup", PANEL)
def setup() -> int:
    """Install what is missing, as each command does first."""
    return 0


@command("run", "run --lake /data/lake --port 8081", PANEL)
def run(
    root: NewLakeOption,
    port: Annotated[int, typer.Option(envvar="PORT", help="Of Airflow's UI and API.")] = 8080,
    is_once: Annotated[
        bool, typer.Option("--once", help="End after the first successful runs.")
    ] = False,
) -> int:
    """Start Airflow, run every stream, show the results, serve until Ctrl-C."""
    return local_airflow.serve(made_lake(root), str(port), once=is_once)


@command("stream", "stream user_counts", PANEL)
def run_stream(stream: StreamArgument, lake: LakeOption) -> int:
    """Ingest and drain one stream once, without Airflow; care for its state, show its table."""
    return run_local.run_stream(lake, stream)


@command("check", "check user_counts", PANEL)
def check(stream: StreamArgument, lake: LakeOption, is_json: JsonOption = False) -> int:
    """Check the checkpoint of a stream; 1 when it found an error. Changes and records nothing."""
    checked = check_checkpoint(lake, stream)
    if is_json:
        show_json(asdict(checked))
    else:
        say(format_check(checked))
    return int(any(finding.severity == "error" for finding in checked.findings))


@command("care", "care user_counts --dry-run", PANEL)
def care(
    lake: LakeOption,
    name: AnyStreamArgument = None,
    is_dry_run: DryRunOption = False,
    is_compacted: Annotated[
        bool, typer.Option("--compact", help="Compact, whatever would be gained.")
    ] = False,
) -> int:
    """Check the checkpoint of a stream, or of each; compact and tune its state."""
    codes = [
        run_local.care(lake, stream, is_dry_run, is_compacted) for stream in streams_named(name)
    ]
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
    figures = read_key(lake, stream, key, datetime.now(UTC), days)
    if is_json:
        show_json(asdict(figures))
    else:
        say(key_text(figures))
    return int(figures.failure is not None)


def streams_named(name: str | None) -> tuple[Stream, ...]:
    """That stream, or all."""
    return all_streams() if name is None else (stream_named(name),)
