"""The check of a stream's checkpoint: its verdict, its figures, and if a compaction is due.

Only a finding of severity error needs a person: the next run would fail, or lose data. A check only
reads; `record_check` writes its findings. After a run that failed with an error of Spark or Delta, it
says what is broken, and what mends it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from include.catalogue import FIGURES, FINDINGS
from include.lake.delta_log import first_line, is_of_machine
from include.lake.errors import LakeError, StatefulError, damaged
from include.lake.generations import read_generations
from include.lake.lease import lease_holder
from include.lake.ops import (
    SEVERITIES,
    Finding,
    Measured,
    finding_lines,
    newest_of,
    read_measured,
    record_figures,
    record_findings,
    runs_of,
)
from include.lake.paths import Lake
from include.settings import MIB, Stream
from include.stream.checkpoint import CheckpointSize, measure_checkpoint
from include.stream.open_stream import DRAINING_JOBS
from include.stream.record import recorded
from include.stream.stream_status import status_of_run
from include.text_table import bytes_text

# A partition of less is loaded in no time, however uneven the spread.
SKEW_FLOOR_BYTES = 16 * MIB
COMPACTED = "replay_versions"  # the finding that a compaction does away with


def newest_measured(lake: Lake, stream: str) -> Measured | None:
    """The newest measurement of a stream's checkpoint; None without any."""
    return next(iter(read_measured(lake, stream, newest=True).get(stream, ())), None)


def limit_findings(stream: Stream, figures: Mapping[str, float | None]) -> list[Finding]:
    """A finding for each figure above its limit; None is not known, or too little to matter."""
    return [
        figure.found(
            stream.name,
            f"{figure.help}: {figure.text(value)}, at most {figure.text(limit)}",
            figure=value,
            limit=limit,
        )
        for figure, value in ((FIGURES[name], value) for name, value in figures.items())
        if value is not None
        if (limit := getattr(stream.limits, figure.limit)) is not None and value > limit
    ]


def _figures(
    size: CheckpointSize, before: Measured | None, run: Mapping[str, Any], rows_pending: int
) -> dict[str, float | None]:
    """The figures that a check compares with limits."""
    now = size.measured
    is_much = max(now.partitions.values(), default=0) >= SKEW_FLOOR_BYTES
    return {
        "checkpoint_bytes": now.bytes,
        "files": now.files,
        "growth_bytes": None if before is None else now.bytes - before.bytes,
        "skew": now.skew if is_much else None,
        "replay_versions": now.replay_versions,
        "rows_pending": rows_pending,
        "rows_late": run.get("rows_late"),
        "rss_bytes": (run.get("jvm_rss_bytes") or 0) + (run.get("python_rss_bytes") or 0),
        "uncommitted_batches": size.uncommitted,
    }


@dataclass(frozen=True)
class CheckResult:
    """The result of a check, with the worst findings first."""

    size: CheckpointSize
    findings: tuple[Finding, ...]
    run_id: str | None  # the stream's newest run by then

    @property
    def why_not_compact(self) -> str | None:
        """The reason why no compaction is due; None when a start replays too much."""
        if any(finding.severity == "error" for finding in self.findings):
            return "first the errors above have to be mended"
        if any(finding.finding == COMPACTED for finding in self.findings):
            return None
        return "what a start replays is in limits"


def check_checkpoint(lake: Lake, stream: Stream) -> CheckResult:
    """Measure the checkpoint of `stream`, and judge it by the record and the stream's limits."""
    generations = read_generations(lake, stream.name)
    lease = f"stream-{stream.name}"
    holder = lease_holder(lake, lease)
    run = newest_of(runs_of(lake, stream.name, DRAINING_JOBS)) or {}
    record = recorded(generations)
    before, written = newest_measured(lake, stream.name), record.batch_of(generations.number)
    size = measure_checkpoint(lake, stream.name, generations.number, written)
    holder = holder or lease_holder(lake, lease)  # it may have begun in between
    if holder:
        said = f"measured while a job was writing ({holder}): what looks broken may be half written"
        found = [FINDINGS["written_while_measured"].found(stream.name, said)]
    else:
        figures = _figures(size, before, run, record.totals.get("rows_pending", 0))
        found = [*limit_findings(stream, figures), *_status(lake, stream)]
        if size.why is not None:
            is_older = size.verdict == "of_other_times"
            known = FINDINGS["checkpoint_of_other_times" if is_older else "checkpoint_unreadable"]
            found.insert(0, known.found(stream.name, size.why))
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return CheckResult(size, tuple(found), run.get("run_id"))


def _status(lake: Lake, stream: Stream) -> list[Finding]:
    try:
        return status_of_run(lake, stream).findings
    except (StatefulError, OSError, ValueError) as error:
        if is_of_machine(error):
            raise
        said = f"whether the table of {stream.name} is right cannot be told: {first_line(error)}"
        return [FINDINGS["status_unreadable"].found(stream.name, said)]


def record_check(lake: Lake, result: CheckResult) -> None:
    """Append the check's findings to `ops/findings`, and then its figures to `ops/figures`.

    Figures mark a complete check, which ends the findings it no longer has: none beside a writing job.
    """
    stream, found = result.size.stream, result.findings
    record_findings(lake, result.run_id, stream, findings=found)
    if not any(each.finding == "written_while_measured" for each in found):
        record_figures(lake, stream, result.run_id, result.size.measured)


def format_check(result: CheckResult) -> str:
    """Return the findings, the decision and the size for a terminal."""
    size, why_not = result.size, result.why_not_compact
    to = "no batch" if size.committed is None else f"batch {size.committed:,}"
    of_all = f"{bytes_text(size.measured.bytes)} in {size.measured.files:,} files"
    lines = [f"{size.stream}: checkpoint {size.checkpoint}, committed up to {to}: {of_all}"]
    lines += finding_lines(map(vars, result.findings)) if result.findings else ["no findings"]
    return "\n".join([*lines, f"compact: {'yes' if why_not is None else f'no, {why_not}'}"])


# A file: folders are named in Spark's messages of any failure.
FILE = r"((?:bronze|tables|checkpoints)/[^\s'\",)\]]+?\.(?:parquet|json|changelog|zip)\b)"
# Spark's error class; for a damaged change log it names no file.
NO_STATE = "CANNOT_LOAD_STATE_STORE"
# In errors of Python, Arrow and the JVM (OutOfMemoryError), and of a worker that was killed.
OF_MEMORY = ("MemoryError", "Python worker exited unexpectedly")


@contextmanager
def explained(lake: Lake, stream: Stream) -> Iterator[None]:
    """Raise LakeError in place of an error of the body that a broken file of the stream has caused.

    To be entered outside of the stream's lease: under it half-written files look broken.
    """
    try:
        yield
    except StatefulError:
        raise
    except Exception as error:
        if is_of_machine(error) or (found := _why_failed(lake, stream, error)) is None:
            raise
        found.exit_code = 1
        raise found from error


def _why_failed(lake: Lake, stream: Stream, error: Exception) -> LakeError | None:
    """The error of what the check, or else the message, says is broken; None when nothing is."""
    result = check_checkpoint(lake, stream)
    record_check(lake, result)
    errors = [found for found in result.findings if found.severity == "error"]
    # That the status cannot be read says less than the file that is broken.
    errors.sort(key=lambda found: found.finding == "status_unreadable")
    is_vague = not errors or errors[0].finding == "status_unreadable"
    if is_vague and (named := _of_what_it_names(lake, stream, error)):
        return named
    for found in errors:
        said = f"{found.finding}: {found.detail}. To do: {found.action}"
        code = "unreadable_table" if is_vague else "unreadable_checkpoint"
        return LakeError(said, code=code, subject=stream.name)
    return None


def _of_what_it_names(lake: Lake, stream: Stream, error: Exception) -> LakeError | None:
    """The error of the file that a message names; None when memory ran out while it was read."""
    said = str(error)
    if any(words in said for words in OF_MEMORY):
        return None
    root = re.escape(lake.path_in_filesystem(lake.root))
    # delta-rs leaves the first slash of a path away.
    if named := re.search(f"{root.removeprefix('/')}/{FILE}", said):
        return damaged(named[1], f"{lake.root}/{named[1]} cannot be read ({first_line(error)})")
    if NO_STATE not in said:
        return None
    path = lake.checkpoint(stream.name, read_generations(lake, stream.name).number)
    return damaged(f"checkpoints/{stream.name}", f"a file of the state in {path} cannot be read")
