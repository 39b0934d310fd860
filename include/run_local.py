"""The commands `./stateful stream`, `ingest`, `maintain`, `inspect` and `reingest`, without Airflow."""

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from include.amend.behind import begun
from include.lake.delta_log import dataset_of
from include.lake.generations import format_result, read_generations, read_result
from include.lake.paths import Lake
from include.registry import descendants_of, source_named, stream_named
from include.settings import PROJECT, Source, Stream
from include.spark.submit import run_job, say
from include.steps import INGEST, STEPS, SourceRun, Step, StreamRun
from include.stream.checkpoint import committed_batch
from include.stream.restate_plan import why_not_mend
from include.text_table import counted

CELL_WIDTH = 48  # of a value on a terminal; output to a pipe has whole values


def run_stream(lake: Lake, stream: Stream) -> int:
    """Take the steps that the stream's Dag would take, and show the table; return the exit code."""
    code = take_steps(StreamRun(lake, stream))
    if code == 0:
        show_result(lake, stream.name)
    return code


def maintain(lake: Lake, stream: Stream, dry_run: bool = False, compact_now: bool = False) -> int:
    """Take the steps after a run: check, compact, tune; return the exit code."""
    run = StreamRun(lake, stream, is_dry=dry_run, is_compacting=compact_now)
    return take_steps(run, taken={"ingest", "run_stream"})


def take_steps(run: StreamRun, taken: Collection[str] = ()) -> int:
    """Take the steps of `run` but those already `taken`, up to one that fails; return its exit code."""
    done = set(taken)
    for step in STEPS:
        if step.name in done or not step.is_of(run) or not done >= set(step.after):
            continue
        if reason := step.why_not(run):
            say(f"{step.name}: {reason}")
            continue
        if code := _take(step, run):
            return code
        done.add(step.name)
    return 0


def _take(step: Step, run: Any) -> int:
    if step.look is not None:
        report = step.look(run)
        say(report.text)
        return int(report.wrong is not None)
    with step.start(run) as start:
        subject = run.source if step.is_of_source else run.stream
        arguments = [*step.arguments(run.lake.root, subject.name), *start.arguments]
        if start.command:
            return subprocess.run([*start.command, *arguments], cwd=PROJECT, check=False).returncode
        return run_job(step.job, arguments, None if step.is_of_source else run.stream)


def inspect_state(lake: Lake, stream: Stream, as_json: bool) -> int:
    """Show a stream's state; LakeError, before a JVM starts, when it has none yet."""
    committed_batch(lake, read_generations(lake, stream.name))
    with TemporaryDirectory(prefix="inspect-") as folder:
        report = Path(folder, "report")
        args = ["--stream", stream.name, "--lake", lake.root, "--output", str(report)]
        # Not by stdout, which is the report's alone: spark-submit mixes a job's stderr into it.
        args += ["--json"] * as_json
        code = run_job("inspect_state", args, stream, sys.stderr)
        if code == 0:
            say(report.read_text())
    return code


def ingest(lake: Lake, source: Source) -> int:
    """Ingest a source here or by Spark; return the exit code."""
    run = SourceRun(lake, source)
    if reason := INGEST.why_not(run):
        say(f"ingest: {reason}")
        return 0
    return _take(INGEST, run)


def downstream_plan(lake: Lake, stream: Stream) -> str:
    """Say which streams follow on one whose rows are replaced, for people."""
    behind = begun(lake, descendants_of(stream.name))
    if not behind:
        return f"no stream that has run reads the table of {stream.name}"
    said = f"then, in this order, each unless its input comes to the same rows: {', '.join(each.name for each in behind)}"
    tables = filter(lake.is_delta_table, (lake.bronze(each.source) for each in behind))
    rows = sum(dataset_of(path).count_rows() for path in tables)
    return f"{said}; at most {counted(rows, 'row')} of their bronze are replayed"


def mend_downstream(lake: Lake, stream: Stream) -> int:
    """Take what has become of a stream's rows into all streams behind it; return the exit code of what failed.

    Each step is by what is there: so whoever was cut off repeats the command, and what is done is left out.
    """
    for child in map(stream_named, descendants_of(stream.name)):
        if code := ingest(lake, source_named(child.source)):
            return code
        if reason := why_not_mend(lake, child):
            say(f"rebuild {child.name}: {reason}")
        elif code := run_job(
            "rebuild_stream", ["--stream", child.name, "--lake", lake.root], child
        ):
            return code
    return 0


def reingest(lake: Lake, source: str, corrections: str | None) -> int:
    """Reingest quarantined rows with a file of corrections; return the exit code."""
    args = ["--source", source, "--lake", lake.root]
    if corrections:
        args += ["--corrections", str(Path(corrections).absolute())]
    command = [sys.executable, "-m", "include.ingest.reingest", *args]
    return subprocess.run(command, cwd=PROJECT, check=False).returncode


def show_result(lake: Lake, stream: str) -> None:
    """Show a stream's table on the terminal."""
    result, most = read_result(lake, stream), CELL_WIDTH if sys.stdout.isatty() else None
    say("")
    say(f"{stream}: no table yet" if result is None else format_result(result, most))
