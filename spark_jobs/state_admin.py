"""Savepoints, recomputes and reseeds by hand, without Airflow: `make savepoint`, `recompute`, ...

    python -m spark_jobs.state_admin plan-backfill --stream user_counts --from 2026-01-05
        --until 2026-01-06

Plans are made here, without a JVM, and what is wrong is said in one line with exit code 2;
what is carried out is the job's, and so is its exit code then.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from include.backfill.plan_backfill import plan_backfill
from include.backfill.plan_recompute import parse_instant, plan_recompute
from include.lake import Lake, LakeError, open_lake
from include.local_jobs import absolute_lake, run_job, say
from include.reseed_request import reseed_options
from include.streams import SettingsError, Stream, default_lake, stream_named
from spark_jobs.plans.reseed_options import add_arguments, options_of
from spark_jobs.plans.reseed_plan import plan_reseed
from spark_jobs.plans.stream_identity import stream_identity


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = ArgumentParser(description="Look after the state of a stream by hand.")
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan-backfill", help="what the runs of a backfill would do")
    recompute = commands.add_parser("recompute", help="recompute an interval")
    reseed = commands.add_parser("reseed", help="the plan of a reseed; with --apply, do it")
    savepoint = commands.add_parser("savepoint", help="write the state down as a savepoint")
    for command in (plan, recompute):
        command.add_argument("--from", dest="start", required=True, help="first instant (UTC)")
        command.add_argument("--until", required=True, help="the instant it ends before (UTC)")
    add_arguments(reseed)
    reseed.add_argument("--apply", action="store_true", help="carry the plan out")
    for command in (plan, recompute, reseed, savepoint):
        command.add_argument("--stream", required=True, help="a stream of include/streams.py")
        command.add_argument("--lake", default=default_lake(), help="the lake's folder or URI")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        lake, stream = open_lake(absolute_lake(args.lake)), stream_named(args.stream)
        if args.command == "savepoint":
            return _run("write_savepoint", lake, stream, [])
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
    say(plan_reseed(lake, stream, options_of(args)).text())
    if not args.apply:
        say("nothing was changed: APPLY=1 carries it out")
        return 0
    return _run("reseed_stream", lake, stream, reseed_options(vars(args)))


def _run(job: str, lake: Lake, stream: Stream, args: list[str]) -> int:
    return run_job(job, ["--stream", stream.name, "--lake", lake.root, *args], stream)


if __name__ == "__main__":
    sys.exit(main())
