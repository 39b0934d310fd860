"""Whether a compaction of a stream's state is worth its run, and what it came to."""

from dataclasses import dataclass

from include.checkpoint.checkpoint_size import CheckpointSize
from include.settings import MIB, Limits
from include.text_table import bytes_text, text_table

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
    if not (worth_a_run(size) and is_over(size.garbage_share, limits.garbage_share)):
        return Decision(False, f"{replay_text(size)}; {garbage_text(size)}: within limits")
    if stops_clean_up(size):
        return Decision(False, f"{garbage_text(size)}, but Spark fails to delete it: see findings")
    return Decision(True, f"{garbage_text(size)} (limit {limits.garbage_share:.0%})")


def is_over(figure: float | None, limit: float | None) -> bool:
    """Whether `figure` is known, and above a limit that there is."""
    return figure is not None and limit is not None and figure > limit


def worth_a_run(size: CheckpointSize) -> bool:
    """Whether there is enough garbage to start a JVM for."""
    return size.garbage_bytes >= GARBAGE_FLOOR_BYTES


def stops_clean_up(size: CheckpointSize) -> bool:
    """Whether Spark fails on some file when it deletes old versions; it only logs that."""
    return bool(size.damaged or size.misnamed)


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
