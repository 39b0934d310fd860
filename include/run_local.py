"""One job without Airflow, for laptops and debugging: `make stream`, `make reingest`.

    python -m include.run_local stream --stream user_counts --lake /some/folder

What the caller got wrong is said in one line, with exit code 2, before any JVM starts;
after that the exit code is the job's.
"""

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyarrow import fs

from include.clock import why_not_ingest
from include.lake import Lake, LakeError, open_lake
from include.spark_submit import job_environment, submit_command
from include.stream_position import has_waiting_rows
from include.stream_result import format_result, read_result
from include.streams import SettingsError, Stream, default_lake, source_named, stream_named


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = ArgumentParser(description="Run one job here, without Airflow.")
    commands = parser.add_subparsers(dest="command", required=True)
    stream = commands.add_parser("stream", help="ingest the source, then drain the stream")
    stream.add_argument("--stream", required=True, help="a stream of include/streams.py")
    reingest = commands.add_parser("reingest", help="take corrected quarantine rows in again")
    reingest.add_argument("--source", required=True, help="a source of include/streams.py")
    reingest.add_argument("--corrections", help="a file with the corrected rows")
    for command in (stream, reingest):
        command.add_argument("--lake", default=default_lake(), help="the lake's folder or URI")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        lake = open_lake(absolute_lake(args.lake))
        if args.command == "stream":
            return run_stream(lake, stream_named(args.stream))
        return reingest(lake, source_named(args.source).name, args.corrections)
    except (SettingsError, LakeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def run_stream(lake: Lake, stream: Stream) -> int:
    """Ingest and drain what is new, and show the table; the exit code of the job that failed."""
    code = 0
    source = source_named(stream.source)
    reason = why_not_ingest(lake, source, interval_end=None, now=datetime.now(UTC))
    if reason is None:
        code = run_job("ingest_source", ["--source", source.name, "--lake", lake.root])
    else:
        say(reason)
    if code == 0 and has_waiting_rows(lake, stream):
        code = run_job("run_stream", ["--stream", stream.name, "--lake", lake.root], stream)
    if code == 0:
        show_result(lake, stream.name)
    return code


def reingest(lake: Lake, source: str, corrections: str | None) -> int:
    args = ["--source", source, "--lake", lake.root]
    if corrections:
        args += ["--corrections", str(Path(corrections).absolute())]
    return run_job("reingest_quarantine", args)


def run_job(job: str, args: Sequence[str], stream: Stream | None = None) -> int:
    """Run a job to its end; its exit code."""
    command = submit_command(job, args, stream)
    return subprocess.run(command, env=os.environ | job_environment(), check=False).returncode


def show_result(lake: Lake, stream: str) -> None:
    """Show a stream's table to whoever is at the terminal."""
    result = read_result(lake, stream)
    say("")
    say(f"{stream}: no table yet" if result is None else format_result(result))


def has_landing_files(lake: Lake) -> bool:
    """Whether any file at all lies in landing/."""
    folder = lake.path_in_filesystem(f"{lake.root}/landing")
    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    return any(info.type == fs.FileType.File for info in lake.filesystem.get_file_info(selector))


def absolute_lake(lake: str) -> str:
    """`lake` whatever the working directory: jobs and Airflow have others."""
    return lake if "://" in lake else str(Path(lake).absolute())


def say(line: str) -> None:
    """A line for people, at once even when the output is a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
