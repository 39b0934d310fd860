"""One job without Airflow, for laptops and debugging: `./stateful stream`, `inspect`, `reingest`.

The exit code is that of the job that failed.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pyarrow import fs

from include.care.tend_state import tend_state
from include.checkpoint.committed_batch import committed_batch
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.lake.stream_result import format_result, read_result
from include.landing.clock import why_not_ingest
from include.plans.waiting_rows import has_waiting_rows
from include.registry import source_named
from include.settings import Stream
from include.spark.local_jobs import run_job, say


def run_stream(lake: Lake, stream: Stream) -> int:
    """Ingest and drain what is new, tend the state, show the table; the code of what failed."""
    code = 0
    source = source_named(stream.source)
    reason = why_not_ingest(lake, source, interval_end=None, now=datetime.now(UTC))
    if reason is None:
        code = run_job("ingest_source", ["--source", source.name, "--lake", lake.root])
    else:
        say(reason)
    if code == 0 and has_waiting_rows(lake, stream):
        code = run_job("run_stream", ["--stream", stream.name, "--lake", lake.root], stream)
        code = code or tend_state(lake, stream)
    if code == 0:
        show_result(lake, stream.name)
    return code


def inspect_state(lake: Lake, stream: Stream, as_json: bool) -> int:
    """Show a stream's state; LakeError, before a JVM starts, when it has none yet."""
    committed_batch(lake, read_generations(lake, stream.name))
    with TemporaryDirectory(prefix="inspect-") as folder:
        report = Path(folder, "report")
        args = ["--stream", stream.name, "--lake", lake.root, "--output", str(report)]
        # Not by stdout, which is the report's alone: spark-submit mixes a job's stderr into it.
        code = run_job("inspect_state", args + ["--json"] * as_json, stream, sys.stderr)
        if code == 0:
            say(report.read_text())
    return code


def reingest(lake: Lake, source: str, corrections: str | None) -> int:
    args = ["--source", source, "--lake", lake.root]
    if corrections:
        args += ["--corrections", str(Path(corrections).absolute())]
    return run_job("reingest_quarantine", args)


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
