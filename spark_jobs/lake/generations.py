"""What a checkpoint's first run pins, `ops/generations`, and whether checkpoint and tables fit.

Spark pins the number of state partitions by itself, silently, and knows nothing of buckets:
under another number keys would look for their states where they are not.
"""

from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable as DeltaLog

from include.checkpoint import newest_committed, newest_planned
from include.lake import Lake, LakeError
from include.ops import append_ops, read_ops, update_ops
from include.streams import SettingsError, Stream

KEY = ("stream", "generation")


def app_id(stream: str, generation: int, table: str) -> str:
    """Names a generation's writes to one table, for the exactly-once writers."""
    return f"{stream}/{generation}/{table}"


def refuse_foreign_checkpoint(lake: Lake, stream: str, generation: int) -> None:
    """LakeError when the checkpoint and what was written under it are not of the same time.

    Under a missing or older checkpoint batches get numbers that the tables take for
    written: their rows would be dropped without a word. A table that is gone would come
    back with only what is new.
    """
    checkpoint = lake.checkpoint(stream, generation)
    planned = newest_planned(lake, checkpoint)
    for path, table in ((lake.table(stream), "table"), (lake.ops("batches"), "batches")):
        written = _written(lake, path, app_id(stream, generation, table))
        if written is not None and (planned is None or planned < written):
            ends = "is missing" if planned is None else f"ends at batch {planned}"
            raise LakeError(
                f"the checkpoint {checkpoint} {ends}, but {path} has batch {written} of it: what "
                "it reads next would be lost. Put back the checkpoint, or a copy that is not older"
            )
    committed = newest_committed(lake, checkpoint)
    if committed is not None and not lake.is_delta_table(lake.table(stream)):
        raise LakeError(
            f"{lake.table(stream)} is missing, but {checkpoint} has written to it up to batch "
            f"{committed}: it would come back with new rows only. Put the table back"
        )


def _written(lake: Lake, path: str, app: str) -> int | None:
    return DeltaLog(path).transaction_version(app) if lake.is_delta_table(path) else None


def pin_generation(lake: Lake, stream: Stream, generation: int, settings: dict[str, Any]) -> None:
    """Record what the generation stands on before its first batch; check it ever after.

    Raises SettingsError, before anything is read, when a pinned setting has changed.
    """
    row = {"stream": stream.name, "generation": generation, **settings}
    first = append_ops(
        lake,
        "generations",
        [row | {"started_at": datetime.now(UTC)}],
        (f"{stream.name}/{generation}", 0),
    )
    if first:
        return
    if newest_planned(lake, lake.checkpoint(stream.name, generation)) is None:
        update_ops(lake, "generations", KEY, [row])  # nothing stands on it yet
        return
    where = {"stream": stream.name, "generation": generation}
    (pinned,) = read_ops(lake, "generations", where).to_pylist()
    for name, value in settings.items():
        if pinned[name] != value:
            raise SettingsError(
                f"stream {stream.name}: {name} is now {value}, but its state was made with "
                f"{pinned[name]}: {_way_out(lake, stream.name, generation)}"
            )


def _way_out(lake: Lake, stream: str, generation: int) -> str:
    checkpoint = lake.checkpoint(stream, generation)
    tables = ((lake.table(stream), "table"), (lake.ops("batches"), "batches"))
    written = [_written(lake, path, app_id(stream, generation, name)) for path, name in tables]
    if written == [None, None]:
        return f"no batch has been written yet, so delete {checkpoint} and run again"
    return (
        "put that back. A state cannot change under a table: to have it otherwise, give the "
        "stream another name (of its file and its entry), which folds all of bronze anew"
    )
