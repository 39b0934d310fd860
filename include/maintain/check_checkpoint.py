"""The check of a stream's checkpoint: what is on record of it, its verdict, its figures against the limits,
whether to compact; as text, and into `ops`.

Only a finding of severity error needs a person: it would fail the next run, or make it lose
data. A check reads; what it found is written by `record_check`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.catalogue import FIGURES, FINDINGS
from include.lake.delta_log import first_line, is_of_machine
from include.lake.errors import LakeError
from include.lake.findings import SEVERITIES, Finding, finding_lines, record_findings
from include.lake.generations import Generations, read_generations
from include.lake.lease import lease_holder
from include.lake.ops import SCHEMAS, append_ops, newest_row, not_ahead, read_ops
from include.lake.paths import Lake
from include.settings import MIB, Stream
from include.stream.measure_checkpoint import CheckpointSize, measure_checkpoint
from include.stream.open_stream import DRAINING_JOBS
from include.stream.record import recorded
from include.stream.stream_status import status_of_run
from include.text_table import text_table

# A compaction is a Spark run of half a minute: not for fewer bytes of garbage than these.
GARBAGE_FLOOR_BYTES = 16 * MIB
# However unevenly so little is spread, all of it is loaded in no time.
SKEW_FLOOR_BYTES = 16 * MIB
OTHER_TIMES, UNREADABLE = FINDINGS["checkpoint_of_other_times"], FINDINGS["checkpoint_unreadable"]
COMPACTED = ("replay_versions", "garbage_share")  # the findings that a compaction does away with


@dataclass(frozen=True)
class Recorded:
    """The newest rows about a stream; None where there is none."""

    run: Mapping[str, Any] | None  # of ops/runs, of any outcome
    batch: int | None  # the newest of this generation that is in the table
    rows_pending: int  # after it
    bytes: int | None  # of the checkpoint when it was last measured

    @property
    def run_id(self) -> str | None:
        return None if self.run is None else self.run["run_id"]


def measured_bytes(lake: Lake, **where: Any) -> int | None:
    """Bytes of the parts of a checkpoint as they were last measured; None when they never were."""
    columns, before = ("measured_at", "bytes"), ("measured_at", not_ahead())
    sizes = read_ops(lake, "checkpoint_sizes", where, columns, before=before)
    newest = sizes.filter(pc.equal(sizes["measured_at"], pc.max(sizes["measured_at"])))
    found: int | None = pc.sum(newest["bytes"]).as_py()
    return found


def read_recorded(lake: Lake, generations: Generations) -> Recorded:
    """The newest rows about a stream, and its record, where that holds."""
    stream, generation = generations.stream, generations.number
    runs = read_ops(lake, "runs", {"subject": stream}, before=("ended_at", not_ahead()))
    ours = runs.filter(pc.is_in(runs["job"], pa.array(DRAINING_JOBS)))
    record = recorded(generations)
    return Recorded(
        newest_row(ours, "ended_at"),
        record.batch_of(generation),
        rows_pending=record.totals.get("rows_pending", 0),
        bytes=measured_bytes(lake, stream=stream, generation=generation),
    )


@dataclass(frozen=True)
class Decision:
    """Whether to compact, and why, in words with figures."""

    needed: bool
    reason: str


def plan_compaction(size: CheckpointSize, findings: Sequence[Finding]) -> Decision:
    """Compact when a start replays too much, or too much of the state is garbage."""
    if any(finding.severity == "error" for finding in findings):
        return Decision(False, "first the errors above have to be mended")
    if not size.stores:
        return Decision(False, "there is no state yet")
    over = [found.detail for found in findings if found.finding in COMPACTED]
    return Decision(bool(over), "; ".join(over) or "what a start replays and garbage are in limits")


def format_compaction(before: CheckpointSize, after: CheckpointSize) -> str:
    """The two sizes side by side."""
    said = (f"{name} {old:,} to {new:,}" for name, old, new in _changes(before, after))
    return f"{after.stream}: compacted, {', '.join(said)}"


def _changes(before: CheckpointSize, after: CheckpointSize) -> Iterator[tuple[str, int, int]]:
    yield "bytes", before.bytes, after.bytes
    yield "files", before.files, after.files
    yield "bytes of garbage", before.garbage_bytes, after.garbage_bytes
    yield "change logs that a start replays", before.replay_versions, after.replay_versions


def limit_findings(stream: Stream, size: CheckpointSize, recorded: Recorded) -> list[Finding]:
    """A finding for each figure above its limit."""
    held = (
        (FIGURES[name], value, getattr(stream.limits, FIGURES[name].limit))
        for name, value in measured_figures(size, recorded).items()
    )
    return [
        figure.found(
            stream.name,
            f"{figure.help}: {figure.text(value)}, at most {figure.text(limit)}",
            figure=value,
            limit=limit,
            unit=figure.unit,
        )
        for figure, value, limit in held
        if value is not None and limit is not None and value > limit
    ]


def measured_figures(size: CheckpointSize, recorded: Recorded) -> dict[str, float | None]:
    """Each figure of the catalogue that a check holds against a limit; None: not known, or too little to matter."""
    run = recorded.run or {}
    is_much = size.garbage_bytes >= GARBAGE_FLOOR_BYTES
    return {
        "checkpoint_bytes": size.bytes,
        "files": size.files,
        "growth_bytes": None if recorded.bytes is None else size.bytes - recorded.bytes,
        "skew": largest_skew(map(vars, size.stores), SKEW_FLOOR_BYTES),
        "replay_versions": size.replay_versions,
        "garbage_share": size.garbage_share if is_much else None,
        "rows_pending": recorded.rows_pending,
        "rows_late": run.get("rows_late"),
        "rss_bytes": (run.get("jvm_rss_bytes") or 0) + (run.get("python_rss_bytes") or 0),
        "uncommitted_batches": size.position.uncommitted,
    }


def largest_skew(stores: Iterable[Mapping[str, Any]], floor_bytes: int = 0) -> float | None:
    """The largest partition of each operator's store, in times of the median: the most; None where all are
    smaller than the floor."""
    by_store = defaultdict(list)
    for store in stores:
        by_store[store["operator"], store["store"]].append(store["bytes"])
    skews = (
        max(sizes) / middle
        for sizes in by_store.values()
        if (middle := median(sizes)) and max(sizes) >= floor_bytes
    )
    return max(skews, default=None)


@dataclass(frozen=True)
class CheckResult:
    """What a check found, the worst first, and whether to compact."""

    size: CheckpointSize
    findings: tuple[Finding, ...]
    compaction: Decision
    run_id: str | None  # the stream's newest run by then


def check_checkpoint(lake: Lake, stream: Stream) -> CheckResult:
    """Measure the checkpoint of `stream`, and judge it by what is recorded and by the stream's limits."""
    generations = read_generations(lake, stream.name)
    lease = f"stream-{stream.name}"
    holder = lease_holder(lake, lease)
    known = read_recorded(lake, generations)
    size = measure_checkpoint(lake, stream.name, generations.number)
    holder = holder or lease_holder(lake, lease)  # it may have begun in between
    if holder:
        why = "a job is writing to it: the check after that job decides"
        said = f"measured while a job was writing ({holder}): what looks broken may be half written"
        written = FINDINGS["written_while_measured"].found(stream.name, said)
        return CheckResult(size, (written,), Decision(False, why), known.run_id)
    findings = [
        *verdict(size, known),
        *limit_findings(stream, size, known),
        *_coverage(lake, stream),
    ]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return CheckResult(size, tuple(findings), plan_compaction(size, findings), known.run_id)


def verdict(size: CheckpointSize, recorded: Recorded) -> list[Finding]:
    """Whether the next run can go on with the checkpoint: no finding, or the one why not."""
    written, planned = recorded.batch, size.position.planned
    if written is not None and (planned is None or planned < written):
        ends = "is missing" if planned is None else f"ends at batch {planned}"
        said = f"{ends}, but the table has batch {written} of it: what the stream reads next would be lost"
        return [OTHER_TIMES.found(size.stream, f"{size.checkpoint} {said}")]
    if size.unreadable is not None:
        said = f"cannot be read, and the next run fails: {size.unreadable}"
        return [UNREADABLE.found(size.stream, f"{size.checkpoint} {said}")]
    return []


def _coverage(lake: Lake, stream: Stream) -> list[Finding]:
    try:
        return status_of_run(lake, stream).findings
    except (LakeError, OSError, ValueError) as error:
        if is_of_machine(error):
            raise
        said = f"whether the table of {stream.name} is right cannot be told: {first_line(error)}"
        return [FINDINGS["coverage_unreadable"].found(stream.name, said)]


def record_check(lake: Lake, result: CheckResult) -> None:
    """Append the check's findings to `ops/findings` and its sizes to `ops/checkpoint_sizes`.

    In that order: sizes say that a check was made, so what it did not find is over. Of one beside a
    job that writes there are none.
    """
    record_findings(lake, result.run_id, result.size.stream, findings=result.findings)
    if all(found.finding != "written_while_measured" for found in result.findings):
        record_sizes(lake, result.size, result.run_id)


def record_sizes(lake: Lake, size: CheckpointSize, run_id: str | None) -> None:
    """Append a checkpoint's sizes to `ops/checkpoint_sizes`, in one commit."""
    rows = [asdict(part) for part in size.parts if part.part != "state" or not size.stores]
    rows += [{"part": "state", **asdict(store)} for store in size.stores]
    known = {
        "stream": size.stream,
        "generation": size.generation,
        "measured_at": size.measured_at,
        "run_id": run_id,
    }
    columns = SCHEMAS["checkpoint_sizes"].names
    told = [{name: row[name] for name in columns if name in row} for row in rows]
    append_ops(lake, "checkpoint_sizes", [known | row for row in told])


def format_check(result: CheckResult) -> str:
    """`result` as text: its findings, the decision, and the sizes."""
    return "\n".join(_lines(result))


def _lines(result: CheckResult) -> Iterator[str]:
    size, committed = result.size, result.size.position.committed
    to = "no batch committed" if committed is None else f"committed up to batch {committed:,}"
    yield f"{size.stream}: checkpoint {size.checkpoint}, {to}"
    yield from finding_lines(map(vars, result.findings)) if result.findings else ["no findings"]
    yield f"compact: {'yes' if result.compaction.needed else 'no'}, {result.compaction.reason}"
    yield from _parts(size) if size.parts else ()


def _parts(size: CheckpointSize) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        (part.part, f"{part.bytes:,}", f"{part.files:,}", f"{part.orphan_files:,}")
        for part in size.parts
    ]
    orphans = sum(part.orphan_files for part in size.parts)
    rows.append(("all", f"{size.bytes:,}", f"{size.files:,}", f"{orphans:,}"))
    yield from text_table(("part", "bytes", "files", "left over"), rows, left=(0,))
