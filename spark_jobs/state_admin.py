"""Savepoints, recomputes, reseeds, repairs by hand, without Airflow: `make savepoint`, ...

    python -m spark_jobs.state_admin plan-backfill --stream user_counts --from 2026-01-05
        --until 2026-01-06

Plans are made here, without a JVM, and what is wrong is said in one line with exit code 2;
what is carried out is the job's, and so is its exit code then.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import datetime

from include.coverage.give_up import give_up_reseed
from include.coverage.rebuild import apply_rebuilt, rebuild
from include.coverage.table_coverage import coverage_text
from include.lake.paths import Lake, LakeError, open_lake
from include.landing.clock import as_text
from include.plans.clock_repair_plan import plan_clock_repair, wanted_repair
from include.plans.plan_backfill import plan_backfill
from include.plans.plan_recompute import parse_instant, plan_recompute
from include.plans.reseed_options import add_arguments, options_of
from include.plans.reseed_plan import plan_reseed
from include.plans.stream_identity import stream_identity
from include.registry import source_named, stream_named
from include.settings import SettingsError, Source, Stream, default_lake
from include.spark.local_jobs import absolute_lake, run_job, say
from include.spark.reseed_request import reseed_options


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = ArgumentParser(description="Look after the state of a stream by hand.")
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan-backfill", help="what the runs of a backfill would do")
    recompute = commands.add_parser("recompute", help="recompute an interval")
    reseed = commands.add_parser("reseed", help="the plan of a reseed; with --apply, do it")
    coverage = commands.add_parser("coverage", help="where the table is right, and where not")
    coverage.add_argument("--rebuild", action="store_true", help="the ledger, by the table's log")
    coverage.add_argument("--apply", action="store_true", help="with --rebuild: write it so")
    savepoint = commands.add_parser("savepoint", help="write the state down as a savepoint")
    for command in (plan, recompute):
        command.add_argument("--from", dest="start", required=True, help="first instant (UTC)")
        command.add_argument("--until", required=True, help="the instant it ends before (UTC)")
    add_arguments(reseed)
    reseed.add_argument("--apply", action="store_true", help="carry the plan out")
    reseed.add_argument(
        "--give-up", action="store_true", help="take back one that was begun and cannot be finished"
    )
    repair = commands.add_parser(
        "repair-clock", help="the plan to set a source's clock back; with --apply, do it"
    )
    repair.add_argument("--source", required=True, help="a source of include/streams")
    repair.add_argument("--to", help="what it is set back to (UTC); left out: finish one")
    repair.add_argument("--apply", action="store_true", help="carry the plan out")
    for command in (plan, recompute, reseed, coverage, savepoint):
        command.add_argument("--stream", required=True, help="a stream of include/streams")
    for command in (plan, recompute, reseed, coverage, savepoint, repair):
        command.add_argument("--lake", default=default_lake(), help="the lake's folder or URI")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        lake = open_lake(absolute_lake(args.lake))
        if args.command == "repair-clock":
            return _repair_clock(lake, source_named(args.source), args)
        stream = stream_named(args.stream)
        if args.command == "savepoint":
            return _run("write_savepoint", lake, stream, [])
        if args.command == "coverage":
            return _coverage(lake, stream, args)
        if args.command == "reseed":
            return _reseed(lake, stream, args)
        return _recompute(lake, stream, args)
    except (SettingsError, LakeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def _recompute(lake: Lake, stream: Stream, args: Namespace) -> int:
    start, until = parse_instant("FROM", args.start), parse_instant("UNTIL", args.until)
    identity = stream_identity(lake, stream)
    if args.command == "plan-backfill":
        say(plan_backfill(lake, stream, identity, start, until).text())
        return 0
    say(plan_recompute(lake, stream, identity, start, until).text())
    interval = ["--from", start.isoformat(), "--until", until.isoformat()]
    return _run("recompute_interval", lake, stream, interval)


def _reseed(lake: Lake, stream: Stream, args: Namespace) -> int:
    if args.give_up:
        generation = give_up_reseed(lake, stream)
        say(f"the reseed of {stream.name} to generation {generation} is given up")
        return 0
    say(plan_reseed(lake, stream, options_of(args)).text())
    if not args.apply:
        say("nothing was changed: APPLY=1 carries it out")
        return 0
    return _run("reseed_stream", lake, stream, reseed_options(vars(args)))


def _coverage(lake: Lake, stream: Stream, args: Namespace) -> int:
    if args.rebuild:
        made = apply_rebuilt(lake, stream) if args.apply else rebuild(lake, stream)
        say(made.text())
        if not args.apply:
            say("nothing was changed: APPLY=1 writes the ledger so")
            return 0
    say(coverage_text(lake, stream))
    return 0


def _repair_clock(lake: Lake, source: Source, args: Namespace) -> int:
    to = parse_instant("TO", args.to) if args.to else None
    say(_repair_text(lake, source, to))
    if not args.apply:
        say("nothing was changed: APPLY=1 carries it out")
        return 0
    wanted = [] if to is None else ["--to", to.isoformat()]
    return run_job("repair_clock", ["--source", source.name, "--lake", lake.root, *wanted])


def _repair_text(lake: Lake, source: Source, to: datetime | None) -> str:
    begun = wanted_repair(lake, source, to)
    if begun is None:
        assert to is not None  # or nothing was wanted
        return plan_clock_repair(lake, source, to).text()
    is_back = "is" if begun.is_reset else "is not yet"
    return (
        f"the clock of bronze/{source.name} {is_back} set back to {as_text(begun.to_us)}: what is "
        "left of the repair is to be finished"
    )


def _run(job: str, lake: Lake, stream: Stream, args: list[str]) -> int:
    return run_job(job, ["--stream", stream.name, "--lake", lake.root, *args], stream)


if __name__ == "__main__":
    sys.exit(main())
