"""What a compaction did to a checkpoint, as people read it in a task log."""

from include.checkpoint.checkpoint_size import CheckpointSize
from include.text_table import bytes_text, text_table


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
