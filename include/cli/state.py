"""What looks after a stream's state and table by hand: status, savepoints, plans, recomputes, reseeds, repairs, erasures.

Plans are made here, without a JVM; what is carried out is the job's, and so is its exit code.
"""

import os
import sys
from typing import Annotated

import typer

from include.amend.clock_repair_plan import plan_clock_repair
from include.amend.erase_plan import plan_erasure
from include.amend.erase_rows import ERASED_KEY, erased_key
from include.cli.app import (
    AnyStreamArgument,
    ApplyOption,
    FromArgument,
    JsonOption,
    LakeOption,
    SourceArgument,
    StreamArgument,
    ToOption,
    UntilArgument,
    UntilOption,
    command,
    planned,
    show_json,
)
from include.lake.errors import wrong_argument
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import MOST_BUCKETS, MOST_PARTITIONS, Stream
from include.spark.submit import run_job, say
from include.stream.open_stream import open_stream
from include.stream.plan_recompute import plan_backfill, plan_recompute
from include.stream.reseed_plan import ReseedOptions, plan_reseed
from include.stream.status_report import told_of, told_of_each

PANEL = "State"


@command("savepoint", "savepoint user_counts", PANEL)
def savepoint(stream: StreamArgument, lake: LakeOption) -> int:
    """Write the state of a stream down as a savepoint."""
    return _run("write_savepoint", lake, stream, args=[])


@command("status", "status user_counts", PANEL)
def status(lake: LakeOption, name: AnyStreamArgument = None, is_json: JsonOption = False) -> int:
    """Show of a stream, or of each, until when its table is complete, where it is right, and what mends it."""
    found = told_of_each(lake) if name is None else [told_of(lake, stream_named(name))]
    texts, records = zip(*found, strict=True)
    if is_json:
        show_json(records if name is None else records[0])
    else:
        say("\n".join(texts))
    return 0


@command("plan-backfill", "plan-backfill device_signals 2026-11-20 2026-11-21", PANEL)
def show_backfill(
    stream: StreamArgument,
    start: FromArgument,
    until: UntilArgument,
    lake: LakeOption,
) -> int:
    """Show what each run of a backfill would do; changes nothing."""
    say(plan_backfill(open_stream(lake, stream), start, until).text())
    return 0


@command("recompute", "recompute device_signals 2026-11-20 2026-11-21", PANEL)
def recompute(
    stream: StreamArgument, start: FromArgument, until: UntilArgument, lake: LakeOption
) -> int:
    """Recompute an interval of a stream in one piece, late rows included."""
    say(plan_recompute(open_stream(lake, stream), start, until).text())
    interval = ["--from", start.isoformat(), "--until", until.isoformat()]
    return _run("recompute_interval", lake, stream, args=interval)


@command("reseed", "reseed user_counts --buckets 100 --apply", PANEL)
def reseed(
    stream: StreamArgument,
    lake: LakeOption,
    until: UntilOption = None,
    buckets: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_BUCKETS, help="Of the new state; as now when not given."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_PARTITIONS, help="State partitions; as now when not given."),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--recompute", help="From the beginning, whatever savepoints there are.")
    ] = False,
    from_state: Annotated[
        bool, typer.Option("--from-state", help="From the older state, by migrate_state.")
    ] = False,
    is_applied: ApplyOption = False,
) -> int:
    """Make a stream's state anew from bronze, late rows included: the plan, or with --apply do it."""
    options = ReseedOptions(buckets, partitions, until, from_beginning, from_state)
    args = ["--options", options.text()]
    plan = plan_reseed(lake, stream, options).text()
    return planned(plan, is_applied, lambda: _run("reseed_stream", lake, stream, args=args))


@command("repair-clock", "repair-clock user_events --to 2026-11-20T10:00:00Z --apply", PANEL)
def repair_clock(
    source: SourceArgument,
    lake: LakeOption,
    to: ToOption = None,
    is_applied: ApplyOption = False,
) -> int:
    """Set the clock of a source back, and reseed its streams: the plan, or with --apply do it."""
    wanted = [] if to is None else ["--to", to.isoformat()]
    args = ["--source", source.name, "--lake", lake.root, *wanted]
    text = plan_clock_repair(lake, source, to).text
    return planned(text, is_applied, lambda: run_job("repair_clock", args))


@command("erase", "erase user_counts alice --apply", PANEL)
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
    """Erase all of a key, in the past too: the plan, or with --apply do it."""
    told = _key_of_stdin() if key == "-" else key
    plan = plan_erasure(lake, erased_key(name, told)).text()
    # Not an argument: those stand in logs.
    os.environ[ERASED_KEY] = told
    args = ["--name", name, "--lake", lake.root]
    return planned(plan, is_applied, lambda: run_job("erase_key", args))


def _key_of_stdin() -> str:
    """All of it but a last line's end: the first line of a key is the key of somebody else."""
    try:
        told = sys.stdin.readline() if sys.stdin.isatty() else sys.stdin.read()
    except UnicodeDecodeError:
        raise wrong_argument("KEY", "the key on the standard input is no text in UTF-8") from None
    return told.removesuffix("\n")


def _run(job: str, lake: Lake, stream: Stream, args: list[str]) -> int:
    return run_job(job, ["--stream", stream.name, "--lake", lake.root, *args], stream)
