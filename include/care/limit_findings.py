"""What of a checkpoint and its stream's last run is above the stream's limits."""

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from include.care.plan_compaction import garbage_text, is_over, replay_text, worth_a_run
from include.care.recorded_sizes import Recorded
from include.checkpoint.checkpoint_size import CheckpointSize
from include.checkpoint.store_size import StoreSize
from include.lake.findings import Finding, Severity
from include.settings import MIB, Limits, Stream
from include.text_table import bytes_text, counted

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
        "info",
    )
    if worth_a_run(size):
        yield _held(
            ("garbage_share", size.garbage_share, limits.garbage_share, "share"),
            garbage_text(size),
            COMPACTED,
            "info",
        )


def _rows(stream: Stream, recorded: Recorded) -> Iterator[Finding]:
    limits = stream.limits
    pending = (recorded.batch or {}).get("rows_pending") or 0
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
