"""A check as people read it in a task log."""

from collections.abc import Iterator, Sequence

from include.care.check_checkpoint import CheckResult
from include.checkpoint.checkpoint_size import CheckpointSize
from include.checkpoint.store_size import StoreSize
from include.lake.findings import Finding
from include.text_table import bytes_text, text_table

MOST_STORES = 16
SINGULAR = {"batches": "batch", "files": "file", "rows": "row", "versions": "version"}


def format_check(result: CheckResult) -> str:
    """`result` as text: its findings, the decision, and the sizes."""
    return "\n".join(_lines(result))


def _lines(result: CheckResult) -> Iterator[str]:
    size = result.size
    yield f"{size.stream}: checkpoint {size.checkpoint}, {_position(size)}"
    yield ""
    yield from _findings(result.findings)
    yield ""
    yield f"compact: {'yes' if result.compaction.needed else 'no'}, {result.compaction.reason}"
    if size.parts:
        yield ""
        yield from _parts(size)
    if size.stores:
        yield ""
        yield from _stores(size)


def _position(size: CheckpointSize) -> str:
    position = size.position
    if position.committed is None:
        return "no batch committed"
    return f"committed up to batch {position.committed:,}"


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
    names = ("part", "bytes", "files", "left over")
    rows: list[tuple[str, ...]] = [
        (part.part, f"{part.bytes:,}", f"{part.files:,}", f"{part.orphan_files:,}")
        for part in size.parts
    ]
    orphans = sum(part.orphan_files for part in size.parts)
    rows.append(("all", f"{size.bytes:,}", f"{size.files:,}", f"{orphans:,}"))
    yield from text_table(names, rows, left=(0,))


def _stores(size: CheckpointSize) -> Iterator[str]:
    largest = sorted(size.stores, key=lambda store: store.bytes, reverse=True)[:MOST_STORES]
    if len(largest) < len(size.stores):
        yield f"the {MOST_STORES} largest of {len(size.stores):,} state partitions"
    names = (
        "partition",
        "bytes",
        "files",
        "versions",
        "newest",
        "snapshot",
        "to replay",
        "replayed bytes",
        "garbage bytes",
        "oldest needed",
    )
    yield from text_table(names, [_row(store) for store in sorted(largest, key=_place)])


def _place(store: StoreSize) -> tuple[int, int, str]:
    return store.operator, store.partition, store.store


def _row(store: StoreSize) -> tuple[str, ...]:
    name = f"{store.operator}/{store.partition}"
    oldest = store.oldest_needed_at
    return (
        name if store.store == "default" else f"{name}/{store.store}",
        f"{store.bytes:,}",
        f"{store.files:,}",
        f"{store.versions:,}",
        "none" if store.newest_version is None else str(store.newest_version),
        "none" if store.newest_snapshot is None else str(store.newest_snapshot),
        f"{store.replay_versions:,}",
        f"{store.replay_bytes:,}",
        f"{store.garbage_bytes:,}",
        "" if oldest is None else f"{oldest:%F %R}",
    )
