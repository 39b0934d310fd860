"""The tables of the lake: their care, sample input, rows of the quarantine once more."""

import logging
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from include import run_local
from include.cli.app import (
    AnyLakeOption,
    DryRunOption,
    LakeOption,
    SourceArgument,
    command,
    instant,
)
from include.lake.paths import made_lake
from include.maintain.maintain import run_maintenance
from include.registry import all_sources, source_named
from include.sample.sample_data import Options, land_samples, sample_start
from include.spark.submit import say

PANEL = "Tables"


@command("maintain-tables", "maintain-tables --dry-run", PANEL)
def maintain_tables(lake: LakeOption, is_dry_run: DryRunOption = False) -> int:
    """Optimize and vacuum what needs it, and delete checkpoints that were replaced long ago."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("table_care").setLevel(logging.INFO)
    return run_maintenance(lake, is_dry_run)


@command("sample-data", "sample-data --events 2000 --late-share 0.05", PANEL)
def sample_data(
    root: AnyLakeOption,
    name: Annotated[str, typer.Option("--source", help="One source, or all.")] = "all",
    start: Annotated[
        datetime | None,
        typer.Option(
            metavar="INSTANT",
            parser=instant("--start"),
            help="First hour, UTC; the last full day if not given.",
        ),
    ] = None,
    seed: int = Options.seed,
    events: Annotated[int, typer.Option(min=0, help="Events of each source.")] = Options.events,
    late_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of rows that come hours late.")
    ] = Options.late_share,
) -> int:
    """Write sample input into the lake's landing folder; the same options give the same files."""
    first = start or sample_start()
    options = Options(start=first, seed=seed, events=events, late_share=late_share)
    sources = all_sources() if name == "all" else (source_named(name),)
    for line in land_samples(made_lake(root), sources, options):
        say(line)
    return 0


@command("reingest", "reingest signals fixed.jsonl", PANEL)
def reingest(
    source: SourceArgument,
    lake: LakeOption,
    corrections: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            exists=True,
            dir_okay=False,
            help='Corrected rows, {"quarantine_id": ..., "raw": ...} a line; without it all open '
            "rows are tried again.",
        ),
    ] = None,
) -> int:
    """Take open rows of the quarantine in again, corrected or by today's rules."""
    given = None if corrections is None else str(corrections)
    return run_local.reingest(lake, source.name, given)
