"""What a checkpoint's first run pins, `ops/generations`, and the check that it still holds.

Spark pins the number of state partitions by itself, silently, and knows nothing of buckets:
under another number keys would look for their states where they are not.
"""

from datetime import UTC, datetime
from typing import Any

from include.lake import Lake
from include.ops import append_ops, read_ops
from include.streams import SettingsError, Stream

PINNED = ("buckets", "state_partitions", "state_schema")


def pin_generation(lake: Lake, stream: Stream, generation: int, state_schema: str) -> None:
    """Record what the generation stands on, at its first run; check it at every other.

    Raises SettingsError, before anything is read, when a pinned setting has changed.
    """
    settings: dict[str, Any] = {
        "buckets": stream.buckets,
        "state_partitions": stream.state_partitions,
        "state_schema": state_schema,
    }
    row = {"stream": stream.name, "generation": generation, "started_at": datetime.now(UTC)}
    # Written before the checkpoint, so that none is ever without its record.
    append_ops(lake, "generations", [row | settings], (f"{stream.name}/{generation}", 0))
    (pinned,) = read_ops(
        lake, "generations", {"stream": stream.name, "generation": generation}
    ).to_pylist()
    for name in PINNED:
        if pinned[name] != settings[name]:
            raise SettingsError(
                f"stream {stream.name}: {name} is now {settings[name]}, but its state was made "
                f"with {pinned[name]}: put that back. (It can change only with a new state)"
            )
