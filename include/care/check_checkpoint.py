"""Is a stream's checkpoint as it should be, within its limits, and is it time to compact?

Only a finding of severity error needs a person: it would fail the next run, or make it lose
data. A check reads; what it found is written by `record_check`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from include.care.damage_findings import damage_findings
from include.care.limit_findings import limit_findings
from include.care.plan_compaction import Decision, plan_compaction
from include.care.recorded_sizes import Occasion, read_recorded, record_sizes
from include.checkpoint.checkpoint_size import CheckpointSize, Position
from include.checkpoint.measure_checkpoint import measure_checkpoint
from include.coverage.table_coverage import find_coverage
from include.lake.delta_log import first_line, is_of_machine
from include.lake.findings import Finding, Severity, record_findings
from include.lake.generations import read_generations
from include.lake.lease import lease_holder
from include.lake.paths import Lake, LakeError
from include.settings import Stream

ORDER: tuple[Severity, ...] = ("error", "warning", "info")
# While a job writes, half of a batch is no damage: what is not yet there comes.
HOLDS_WHILE_WRITTEN = frozenset(
    {
        "bronze_changed",
        "checkpoint_bytes",
        "checkpoint_files",
        "growth_bytes",
        "skew",
        "pending_rows",
        "many_late_rows",
        "late_rows_not_recomputed",
        "state_lacks_rows",
        "table_not_right",
        "rss_bytes",
    }
)


@dataclass(frozen=True)
class CheckResult:
    """What a check found, the worst first, and whether to compact."""

    size: CheckpointSize
    findings: tuple[Finding, ...]
    compaction: Decision
    run_id: str | None  # the stream's newest run by then


def check_checkpoint(lake: Lake, stream: Stream) -> CheckResult:
    """Measure the checkpoint of `stream`, and judge it by the stream's limits."""
    generation = read_generations(lake, stream.name).number
    lease = f"stream-{stream.name}"
    holder = lease_holder(lake, lease)
    recorded = read_recorded(lake, stream.name, generation)
    try:
        size = measure_checkpoint(lake, stream.name, generation)
    except LakeError as error:
        return _unreadable(lake, stream.name, generation, recorded.run_id, error)
    findings = damage_findings(size, recorded) + limit_findings(stream, size, recorded)
    findings += _coverage(lake, stream)
    holder = holder or lease_holder(lake, lease)  # it may have begun in between
    if holder:
        findings = [f for f in findings if f.finding in HOLDS_WHILE_WRITTEN]
        findings.append(_written_while_measured(holder))
    findings.sort(key=lambda finding: ORDER.index(finding.severity))
    decision = _decide(stream, size, findings, holder)
    return CheckResult(size, tuple(findings), decision, recorded.run_id)


def _coverage(lake: Lake, stream: Stream) -> list[Finding]:
    try:
        return find_coverage(lake, stream)
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


def _decide(
    stream: Stream, size: CheckpointSize, findings: list[Finding], holder: str | None
) -> Decision:
    if holder:
        return Decision(False, "a job is writing to it: the check after that job decides")
    if any(finding.severity == "error" for finding in findings):
        return Decision(False, "first the errors above have to be mended")
    if not size.stores:
        return Decision(False, "there is no state yet")
    return plan_compaction(size, stream.limits)


def _written_while_measured(holder: str) -> Finding:
    return Finding(
        finding="written_while_measured",
        severity="info",
        detail=f"measured while a job was writing ({holder}): what looks broken may be half written",
        action="nothing, the next check looks again",
    )


def _unreadable(
    lake: Lake, stream: str, generation: int, run_id: str | None, error: LakeError
) -> CheckResult:
    checkpoint = lake.checkpoint(stream, generation)
    nowhere = Position(planned=None, committed=None)
    size = CheckpointSize(
        stream=stream,
        generation=generation,
        checkpoint=checkpoint,
        measured_at=datetime.now(UTC),
        position=nowhere,
    )
    found = Finding(
        finding="checkpoint_unreadable",
        severity="error",
        detail=str(error),
        action=f"see that {checkpoint} is a folder which this process may read, and nothing else",
    )
    return CheckResult(size, (found,), Decision(False, "it could not be measured"), run_id)


def record_check(lake: Lake, result: CheckResult, occasion: Occasion = "after_run") -> None:
    """Append the check's findings to `ops/findings` and its sizes to `ops/checkpoint_sizes`.

    In that order: sizes say that a check was made, so what it did not find is over.
    """
    record_findings(lake, result.run_id, result.size.stream, result.findings)
    record_sizes(lake, result.size, result.run_id, occasion)
