"""What a checkpoint's first run pins, `ops/generations`, and whether checkpoint and tables fit.

Spark pins the number of state partitions by itself, silently, and knows nothing of buckets:
under another number keys would look for their states where they are not.
"""

from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable as DeltaLog

from include.checkpoint import newest_committed, newest_planned
from include.generations import GenerationRow, is_reseeded, pinned_row
from include.lake import Lake, LakeError
from include.ops import append_ops, update_ops
from include.savepoints.lineage import same_code
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


def pin_generation(
    lake: Lake, stream: Stream, generation: int, settings: dict[str, Any], code: str
) -> bool:
    """Record what the generation stands on before its first batch; check it ever after.

    Returns whether this run is the first whose `code` is not that of the generation. Raises
    SettingsError, before anything is read, when a pinned setting has changed.
    """
    row = {"stream": stream.name, "generation": generation, **settings}
    first = append_ops(
        lake,
        "generations",
        [row | {"started_at": datetime.now(UTC), "code": code}],
        (f"{stream.name}/{generation}", 0),
    )
    if first:
        return False
    pinned = pinned_row(lake, stream.name, generation)
    begun = newest_planned(lake, lake.checkpoint(stream.name, generation)) is not None
    if not begun and not is_reseeded(pinned):
        update_ops(lake, "generations", KEY, [row | {"code": code}])  # nothing stands on it yet
        return False
    for name, value in settings.items():
        if pinned[name] != value:
            raise SettingsError(
                f"stream {stream.name}: {name} is now {value}, but its state was made with "
                f"{pinned[name]}: {_way_out(lake, stream.name, generation, name)}"
            )
    return _note_code(lake, pinned, code)


def _note_code(lake: Lake, pinned: GenerationRow, code: str) -> bool:
    """Whether `code` is new to the generation: then its state is no one code's any more."""
    known = pinned["code"]
    if known is None or same_code(known, code) or pinned["code_changed_at"] is not None:
        return False
    key = {name: pinned[name] for name in KEY}
    update_ops(lake, "generations", KEY, [key | {"code_changed_at": datetime.now(UTC)}])
    return True


def _way_out(lake: Lake, stream: str, generation: int, setting: str) -> str:
    checkpoint = lake.checkpoint(stream, generation)
    tables = ((lake.table(stream), "table"), (lake.ops("batches"), "batches"))
    written = [_written(lake, path, app_id(stream, generation, name)) for path, name in tables]
    if written == [None, None]:
        return f"no batch has been written yet, so delete {checkpoint} and run again"
    mapped = (
        " In place of RECOMPUTE=1, FROM_STATE=1 maps the states of a savepoint to the new schema by "
        "the function migrate_state of the stream's file, and replays only what came after it"
    )
    return (
        "put that back, or make its state and its table anew from bronze: `make reseed "
        f"STREAM={stream} RECOMPUTE=1` shows what that would do, and APPLY=1 does it."
        f"{mapped if setting == 'state_schema' else ''}"
    )
