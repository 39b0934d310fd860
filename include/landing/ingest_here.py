"""Take what has landed for a source into bronze and quarantine, without a JVM.

    python -m include.landing.ingest_here --source signals --lake lake

For what little lands between two runs: a JVM takes longer to start than this to end. Much is
better parsed by Spark, if that has more machines than this one (include/landing/origin.py: `is_little`).
"""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from include import job
from include.lake.lease import hold_lease
from include.lake.paths import Lake, open_lake
from include.landing.ingest import ingest
from include.landing.parsed_batch import Parse, parsed_here
from include.registry import source_named

# A compaction of a stream's state holds the lease for half a minute or so.
COMPACTION_PATIENCE = timedelta(minutes=2)


def run(parse_on: Callable[[Lake], Parse]) -> None:
    """One run of ingestion, as the command line says; `parse_on` gives who parses."""
    arguments = parse_args()
    source = source_named(arguments.source)
    lake = open_lake(arguments.lake)
    with (
        hold_lease(lake, f"ingest-{source.name}", COMPACTION_PATIENCE),
        job.recorded_run(lake, "ingest_source", source.name, arguments.dag_run_id) as record,
    ):
        ingest(lake, source, record, arguments.interval_end, parse_on(lake))


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = job.job_parser(__doc__, "source")
    parser.add_argument(
        "--interval-end",
        type=instant_or_none,
        metavar="INSTANT",
        help="where the Dag run's data interval ends, with a zone; empty or left out: now",
    )
    return parser.parse_args(arguments)


def instant_or_none(text: str) -> datetime | None:
    """An ISO instant of the command line; an empty text is none, as Airflow's template gives."""
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if instant.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no zone: end it with Z, for UTC")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is not in the years 1 to 9999 of UTC") from None


def main() -> None:
    run(lambda lake: parsed_here)


if __name__ == "__main__":
    job.exit_with_main(main)
