"""The check of a stream's checkpoint: its verdict, its size against the limits, whether to compact, as text.

Only a finding of severity error needs a person: it would fail the next run, or make it lose
data. A check reads; what it found is written by `record_check`.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from include.care.recorded_sizes import Occasion, Recorded, read_recorded, record_sizes
from include.checkpoint.measure_checkpoint import CheckpointSize, StoreSize, measure_checkpoint
from include.lake.delta_log import first_line, is_of_machine
from include.lake.findings import Finding, Severity, record_findings
from include.lake.generations import read_generations
from include.lake.lease import lease_holder
from include.lake.paths import Lake, LakeError
from include.plans.stream_status import status_of_run
from include.settings import MIB, Limits, Stream
from include.text_table import bytes_text, counted, text_table

# A compaction is a Spark run of half a minute: not for fewer bytes than these.
GARBAGE_FLOOR_BYTES = 16 * MIB


@dataclass(frozen=True)
class Decision:
    """Whether to compact, and why, in words with figures."""

    needed: bool
    reason: str


def plan_compaction(size: CheckpointSize, limits: Limits) -> Decision:
    """Compact when a start replays too much, or too much of the state is garbage."""
    if is_over(size.replay_versions, limits.replay_versions):
        return Decision(True, f"{replay_text(size)} (limit {limits.replay_versions})")
    if worth_a_run(size) and is_over(size.garbage_share, limits.garbage_share):
        return Decision(True, f"{garbage_text(size)} (limit {limits.garbage_share:.0%})")
    return Decision(False, f"{replay_text(size)}; {garbage_text(size)}: within limits")


def is_over(figure: float | None, limit: float | None) -> bool:
    """Whether `figure` is known, and above a limit that there is."""
    return figure is not None and limit is not None and figure > limit


def worth_a_run(size: CheckpointSize) -> bool:
    """Whether there is enough garbage to start a JVM for."""
    return size.garbage_bytes >= GARBAGE_FLOOR_BYTES


def replay_text(size: CheckpointSize) -> str:
    """What a start replays, for people."""
    if not size.replay_versions:
        return "a start replays no change log"
    longest = max(size.stores, key=lambda store: store.replay_versions)
    replayed = sum(store.replay_bytes for store in size.stores)
    logs = (
        "1 change log" if longest.replay_versions == 1 else f"{longest.replay_versions} change logs"
    )
    return (
        f"a start replays {logs} in partition {longest.operator}/{longest.partition}, "
        f"{bytes_text(replayed)} in all partitions"
    )


def garbage_text(size: CheckpointSize) -> str:
    """What a compaction would delete, for people."""
    if not size.garbage_bytes:
        return "nothing is garbage"
    return f"{size.garbage_share:.0%} of the state is garbage, {bytes_text(size.garbage_bytes)}"


def format_compaction(before: CheckpointSize, after: CheckpointSize) -> str:
    """The two sizes side by side, and how much of the first is left."""
    figures = zip(_figures(before), _figures(after), strict=True)
    rows = [
        (name, f"{old:,}", f"{new:,}", f"{new / old:.0%}" if old else "")
        for (name, old), (_, new) in figures
    ]
    total = (
        f"{after.stream}: compacted from {bytes_text(before.bytes)} to {bytes_text(after.bytes)}"
    )
    return "\n".join(
        [total, "", *text_table(("checkpoint", "before", "after", "left"), rows, (0,))]
    )


def _figures(size: CheckpointSize) -> list[tuple[str, int]]:
    return [
        ("bytes", size.bytes),
        ("files", size.files),
        ("bytes of state", size.state_bytes),
        ("change logs that a start replays, most in a partition", size.replay_versions),
        ("change logs that a start replays, all", sum(s.replay_versions for s in size.stores)),
        ("snapshots, fewest in a partition", min((s.snapshots for s in size.stores), default=0)),
        ("bytes of garbage", size.garbage_bytes),
    ]


# However unevenly so little is spread, all of it is loaded in no time.
SKEW_FLOOR_BYTES = 16 * MIB
COMPACTED = "nothing, the compaction after a run does away with it, as `./stateful care` does"


def limit_findings(stream: Stream, size: CheckpointSize, recorded: Recorded) -> list[Finding]:
    """A warning for each figure above its limit; info for those that a compaction mends."""
    held = [
        *_sizes(stream, size, recorded),
        *_skew(stream, size),
        *_costs(stream.limits, size),
        *_rows(stream, recorded),
        _memory(stream.limits, recorded),
        _uncommitted(stream.limits, size),
    ]
    return [finding for finding in held if is_over(finding.figure, finding.limit)]


def _sizes(stream: Stream, size: CheckpointSize, recorded: Recorded) -> Iterator[Finding]:
    limits, state = stream.limits, bytes_text(size.state_bytes)
    inspect = f"`./stateful inspect {stream.name}` shows what the state holds"
    yield _held(
        ("checkpoint_bytes", size.bytes, limits.checkpoint_bytes, "bytes"),
        f"the checkpoint has {bytes_text(size.bytes)}, {state} of it state",
        f"{inspect}. Let the stream's function remove() states or set timeouts; if all is "
        "wanted, raise limits.checkpoint_bytes",
    )
    yield _held(
        ("checkpoint_files", size.files, limits.checkpoint_files, "files"),
        f"the checkpoint has {counted(size.files, 'file')}",
        "lower limits.replay_versions, which compacts more often; or raise limits.checkpoint_files",
    )
    if recorded.bytes is not None:
        grown = size.bytes - recorded.bytes
        yield _held(
            ("growth_bytes", grown, limits.growth_bytes, "bytes"),
            f"the checkpoint grew by {bytes_text(grown)} since {recorded.measured_at:%F %R} UTC",
            f"normal after many new keys. If it goes on: {inspect}, keys without a timeout first",
        )


def _skew(stream: Stream, size: CheckpointSize) -> Iterator[Finding]:
    for skew, largest in skews(size):
        if largest.bytes >= SKEW_FLOOR_BYTES:
            yield _held(
                ("skew", skew, stream.limits.skew, "times"),
                f"partition {largest.operator}/{largest.partition} has "
                f"{bytes_text(largest.bytes)}, {skew:.1f} times the median partition",
                f"`./stateful inspect {stream.name}` shows the biggest keys and buckets: keep "
                "less per key, or spread keys over more buckets",
            )


def skews(size: CheckpointSize) -> Iterator[tuple[float, StoreSize]]:
    """The largest partition of each operator's store, before it how many times the median."""
    by_store = defaultdict(list)
    for store in size.stores:
        by_store[store.operator, store.store].append(store)
    for stores in by_store.values():
        largest = max(stores, key=lambda store: store.bytes)
        if middle := median(store.bytes for store in stores):
            yield largest.bytes / middle, largest


def _costs(limits: Limits, size: CheckpointSize) -> Iterator[Finding]:
    yield _held(
        ("replay_versions", size.replay_versions, limits.replay_versions, "versions"),
        replay_text(size),
        COMPACTED,
        severity="info",
    )
    if worth_a_run(size):
        yield _held(
            ("garbage_share", size.garbage_share, limits.garbage_share, "share"),
            garbage_text(size),
            COMPACTED,
            severity="info",
        )


def _rows(stream: Stream, recorded: Recorded) -> Iterator[Finding]:
    limits = stream.limits
    pending = recorded.rows_pending
    yield _held(
        ("pending_rows", pending, limits.pending_rows, "rows"),
        f"{counted(pending, 'row')} not settled yet",
        f"they are newer than the watermark of source {stream.source}. If it falls silent, give it "
        "a clock_grace; if rows come less late than watermark_delay, a shorter delay",
    )
    late = (recorded.run or {}).get("rows_late") or 0
    yield _held(
        ("many_late_rows", late, limits.late_rows, "rows"),
        f"{counted(late, 'row')} of the last run came late: in bronze, and not in the table",
        "the finding late_rows of that run has their times: a watermark_delay as long would have "
        "admitted them. If they may be missing, raise limits.late_rows",
    )


def _memory(limits: Limits, recorded: Recorded) -> Finding:
    run = recorded.run or {}
    jvm, python = run.get("jvm_rss_bytes") or 0, run.get("python_rss_bytes") or 0
    return _held(
        ("rss_bytes", jvm + python, limits.rss_bytes, "bytes"),
        f"the last run held {bytes_text(jvm)} in its JVM, {bytes_text(python)} in Python",
        "hold RocksDB to less with the entry's `rocksdb`; or, where the machine has the memory, "
        "raise limits.rss_bytes",
    )


def _uncommitted(limits: Limits, size: CheckpointSize) -> Finding:
    position = size.position
    return _held(
        ("uncommitted_batches", position.uncommitted, limits.uncommitted_batches, "batches"),
        f"batch {position.planned} was begun, and not committed",
        "the next run repeats it. If it fails again, ops/runs says why",
    )


def _held(
    against: tuple[str, float, float | None, str],
    detail: str,
    action: str,
    severity: Severity = "warning",
) -> Finding:
    finding, figure, limit, unit = against
    return Finding(
        finding=finding,
        severity=severity,
        detail=detail,
        figure=figure,
        limit=limit,
        unit=unit,
        action=action,
    )


ORDER: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class CheckResult:
    """What a check found, the worst first, and whether to compact."""

    size: CheckpointSize
    findings: tuple[Finding, ...]
    compaction: Decision
    run_id: str | None  # the stream's newest run by then


def check_checkpoint(lake: Lake, stream: Stream) -> CheckResult:
    """Measure the checkpoint of `stream`, and judge it by what is recorded and by the stream's limits."""
    generation = read_generations(lake, stream.name).number
    lease = f"stream-{stream.name}"
    holder = lease_holder(lake, lease)
    recorded = read_recorded(lake, stream.name, generation)
    size = measure_checkpoint(lake, stream.name, generation)
    holder = holder or lease_holder(lake, lease)  # it may have begun in between
    if holder:
        why = "a job is writing to it: the check after that job decides"
        return CheckResult(size, (_written(holder),), Decision(False, why), recorded.run_id)
    findings = [
        *verdict(size, recorded),
        *limit_findings(stream, size, recorded),
        *_coverage(lake, stream),
    ]
    findings.sort(key=lambda finding: ORDER.index(finding.severity))
    decision = _decide(stream, size, findings)
    return CheckResult(size, tuple(findings), decision, recorded.run_id)


def verdict(size: CheckpointSize, recorded: Recorded) -> list[Finding]:
    """Whether the next run can go on with the checkpoint: no finding, or the one why not."""
    written, planned = recorded.batch, size.position.planned
    if written is not None and (planned is None or planned < written):
        ends = "is missing" if planned is None else f"ends at batch {planned}"
        said = f"{ends}, but the table has batch {written} of it: what the stream reads next would be lost"
        return [_unfit(size, "checkpoint_of_other_times", said)]
    if size.unreadable is not None:
        said = f"cannot be read, and the next run fails: {size.unreadable}"
        return [_unfit(size, "checkpoint_unreadable", said)]
    return []


def _unfit(size: CheckpointSize, finding: str, said: str) -> Finding:
    return Finding(
        finding=finding,
        severity="error",
        detail=f"{size.checkpoint} {said}",
        action="make a new one from bronze, beside it (or put a copy back that is not older): "
        f"`./stateful reseed {size.stream} --apply`",
    )


def _coverage(lake: Lake, stream: Stream) -> list[Finding]:
    try:
        return status_of_run(lake, stream).findings
    except (LakeError, OSError, ValueError) as error:
        if is_of_machine(error):
            raise
        return [
            Finding(
                finding="coverage_unreadable",
                severity="error",
                detail=f"whether the table of {stream.name} is right cannot be told: {first_line(error)}",
                action="mend what it names, or make the state anew from bronze: `./stateful reseed "
                f"{stream.name} --apply`",
            )
        ]


def _decide(stream: Stream, size: CheckpointSize, findings: list[Finding]) -> Decision:
    if any(finding.severity == "error" for finding in findings):
        return Decision(False, "first the errors above have to be mended")
    if not size.stores:
        return Decision(False, "there is no state yet")
    return plan_compaction(size, stream.limits)


def _written(holder: str) -> Finding:
    return Finding(
        finding="written_while_measured",
        severity="info",
        detail=f"measured while a job was writing ({holder}): what looks broken may be half written",
        action="nothing, the next check looks again",
    )


def record_check(lake: Lake, result: CheckResult, occasion: Occasion = "after_run") -> None:
    """Append the check's findings to `ops/findings` and its sizes to `ops/checkpoint_sizes`.

    In that order: sizes say that a check was made, so what it did not find is over.
    """
    record_findings(lake, result.run_id, result.size.stream, findings=result.findings)
    record_sizes(lake, result.size, result.run_id, occasion=occasion)


SINGULAR = {"batches": "batch", "files": "file", "rows": "row", "versions": "version"}


def format_check(result: CheckResult) -> str:
    """`result` as text: its findings, the decision, and the sizes."""
    return "\n".join(_lines(result))


def _lines(result: CheckResult) -> Iterator[str]:
    size, committed = result.size, result.size.position.committed
    to = "no batch committed" if committed is None else f"committed up to batch {committed:,}"
    yield f"{size.stream}: checkpoint {size.checkpoint}, {to}"
    yield ""
    yield from _findings(result.findings)
    yield ""
    yield f"compact: {'yes' if result.compaction.needed else 'no'}, {result.compaction.reason}"
    if size.parts:
        yield ""
        yield from _parts(size)


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        yield "no findings: all is within its limits"
        return
    rows = [
        (found.severity, found.finding, _figure(found, found.figure), _figure(found, found.limit))
        for found in findings
    ]
    yield from text_table(("severity", "finding", "figure", "limit"), rows, left=(0, 1))
    for found in findings:
        yield ""
        yield f"  {found.finding}: {found.detail}."
        yield f"    To do: {found.action}."


def _figure(found: Finding, figure: float | None) -> str:
    if figure is None:
        return ""
    if found.unit == "bytes":
        return bytes_text(figure)
    if found.unit == "share":
        return f"{figure:.0%}"
    if found.unit == "times":
        return f"{figure:.1f} times"
    unit = SINGULAR.get(found.unit or "", "") if figure == 1 else found.unit
    return f"{figure:,.0f} {unit}"


def _parts(size: CheckpointSize) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        (part.part, f"{part.bytes:,}", f"{part.files:,}", f"{part.orphan_files:,}")
        for part in size.parts
    ]
    orphans = sum(part.orphan_files for part in size.parts)
    rows.append(("all", f"{size.bytes:,}", f"{size.files:,}", f"{orphans:,}"))
    yield from text_table(("part", "bytes", "files", "left over"), rows, left=(0,))
