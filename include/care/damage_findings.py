"""What is wrong with a checkpoint, whatever its size: findings, and what to do about each.

An error is what would fail the next run, or make it lose data: tried with Spark 4.2, or read
in its source.
"""

from collections.abc import Iterator, Sequence
from shlex import quote

from include.care.recorded_sizes import Recorded
from include.checkpoint.checkpoint_files import LOGS, parse_name
from include.checkpoint.measure_checkpoint import CheckpointSize, Fault
from include.lake.findings import Finding, Severity
from include.text_table import bytes_text, first_names

MOST_NAMES = 20  # in one command
NO_JOB = "while no job of the stream runs, "


def damage_findings(size: CheckpointSize, recorded: Recorded) -> list[Finding]:
    """All that is wrong with the checkpoint; errors first."""
    if lost := _lost(size, recorded):
        return [lost]
    if size.position.planned is None and not size.missing:
        return [_no_checkpoint(size)]
    return [*_errors(size), *_warnings(size), *_left_over(size)]


def _lost(size: CheckpointSize, recorded: Recorded) -> Finding | None:
    """A checkpoint that is not that which the tables were written under."""
    written, planned = recorded.batch, size.position.planned
    if written is None or (planned is not None and written <= planned):
        return None
    ends = "is missing" if planned is None else f"ends at batch {planned}"
    return Finding(
        finding="checkpoint_missing" if planned is None else "checkpoint_rewound",
        severity="error",
        detail=f"{size.checkpoint} {ends}, but the table has batch {written} of it: what the "
        "stream reads next would be lost",
        action=_put_back(size, size.checkpoint),
    )


def _no_checkpoint(size: CheckpointSize) -> Finding:
    return Finding(
        finding="no_checkpoint",
        severity="info",
        detail=f"{size.checkpoint} has no batch yet",
        action="nothing, the first run makes it",
    )


def _errors(size: CheckpointSize) -> Iterator[Finding]:
    if size.missing and size.position.planned is None:
        yield _never_begun(size)
    elif size.missing:
        yield _found(
            "missing_files",
            "error",
            f"the next run cannot start without {first_names(size.missing)}",
            files=len(size.missing),
            action=_put_back(size, "what is missing"),
        )
    if size.unreadable:
        yield _found(
            "unreadable_files",
            "error",
            f"the next run fails on {_faults(size.unreadable)}",
            files=len(size.unreadable),
            action=_mend(size),
        )
    if blocking := blocking_files(size):
        yield _found(
            "blocking_files",
            "error",
            f"the next run fails on the names of {first_names(blocking)}",
            files=len(blocking),
            action=f"{_set_aside(size, blocking)}: they are no part of it",
        )


def _put_back(size: CheckpointSize, what: str) -> str:
    return (
        f"put back {what} from a copy of the lake that is not older. Without one, make the state anew "
        f"from bronze: `./stateful reseed {size.stream} --apply`"
    )


def _set_aside(size: CheckpointSize, paths: Sequence[str]) -> str:
    """The command, for a part of the files at once if there are many; without any: for all of it."""
    folder = f"checkpoints/{size.checkpoint.rpartition('/checkpoints/')[2]}"
    names = [quote(f"{folder}/{path}") for path in paths[:MOST_NAMES]] or [folder]
    return f"{NO_JOB}`./stateful set-aside {' '.join(names)} --apply`"


def _mend(size: CheckpointSize) -> str:
    if all(fault.path.startswith("commits/") for fault in size.unreadable):
        paths = [fault.path for fault in size.unreadable]
        return f"{_set_aside(size, paths)}: the batch is repeated, and writes nothing twice"
    return _put_back(size, "these files")


def _never_begun(size: CheckpointSize) -> Finding:
    return _found(
        "missing_files",
        "error",
        "there are files in state, commits or offsets, but no batch in offsets: Spark starts no "
        "query on them",
        files=len(size.missing),
        action=f"{_set_aside(size, [])}: no batch of it is recorded",
    )


def blocking_files(size: CheckpointSize) -> list[str]:
    """Left-over files that Spark stumbles over at its next batch."""
    return [path for path in size.left_over if _blocks_a_log(path, size)]


def _blocks_a_log(path: str, size: CheckpointSize) -> bool:
    """Whether `path` is the checksum of a log file that is still to be written.

    Hadoop checks a new file against it, and Spark takes the failure for another query's doing.
    """
    folder, _, name = path.rpartition("/")
    if folder not in LOGS or not name.endswith(".crc"):
        return False
    batch = parse_name(f"{folder}/{name[1:-4]}").number
    position = size.position
    newest = position.planned if folder == "offsets" else position.committed
    return batch is not None and batch > (-1 if newest is None else newest)


def _warnings(size: CheckpointSize) -> Iterator[Finding]:
    if size.damaged:
        take_away = _set_aside(size, [fault.path for fault in size.damaged])
        yield _found(
            "damaged_snapshot",
            "warning",
            f"{_faults(size.damaged)}. Spark begins at an older one, and fails to delete old ones",
            files=len(size.damaged),
            action=_put_back(size, "a sound one") if size.missing else take_away,
        )
    if size.unknown:
        yield _found(
            "unknown_files",
            "warning",
            f"{first_names(size.unknown)}: not files that Spark writes",
            files=len(size.unknown),
            action=_set_aside(size, size.unknown),
        )


def _left_over(size: CheckpointSize) -> Iterator[Finding]:
    blocking = set(blocking_files(size))
    if left := [path for path in size.left_over if path not in blocking]:
        orphan_bytes = sum(part.orphan_bytes for part in size.parts)
        yield _found(
            "left_over_files",
            "info",
            f"{first_names(left)}: of no version, left by a run that was killed or repeated, "
            f"{bytes_text(orphan_bytes)}",
            files=len(left),
            action="nothing, they are harmless. If their bytes matter, delete them while no job of the stream runs",
        )


def _faults(faults: Sequence[Fault]) -> str:
    return first_names([f"{fault.path} ({fault.reason})" for fault in faults])


def _found(finding: str, severity: Severity, detail: str, files: int, action: str) -> Finding:
    return Finding(
        finding=finding,
        severity=severity,
        detail=detail,
        figure=files,
        unit="files",
        action=action,
    )
