"""What a checkpoint's first run pins, `ops/generations`, and whether checkpoint and tables fit.

Spark pins the number of state partitions by itself, silently, and knows nothing of buckets:
under another number keys would look for their states where they are not.
"""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from include.checkpoint.bronze_readers import refuse_cut_off
from include.checkpoint.checkpoint_files import newest_committed, newest_planned, query_id
from include.checkpoint.committed_batch import is_settled, read_position
from include.lake.delta_log import open_table
from include.lake.generations import (
    GenerationRow,
    Generations,
    exactly_once_tables,
    is_reseeded,
    read_generations,
    written_batch,
)
from include.lake.how_to_mend import how_to_ingest_anew
from include.lake.ops import append_ops, update_ops
from include.lake.paths import Lake, LakeError
from include.savepoints.manifest import same_code, serves
from include.settings import SettingsError, Stream

KEY = ("stream", "generation")
# A savepoint made under another one of these still serves a reseed.
CHANGE_NO_STATE = ("buckets", "state_partitions", "watermark_delay_ms")


class Pinned(NamedTuple):
    """What a run's generation was made with, and what is to be noted when the run writes."""

    row: GenerationRow
    code_is_new: bool  # the run is the first whose code is not that of the generation


def refuse_foreign_checkpoint(lake: Lake, generations: Generations) -> None:
    """LakeError when the checkpoint and what was written under it are not of the same time.

    Under a missing or older checkpoint batches get numbers that the tables take for
    written: their rows would be dropped without a word. (That the table is not older than the
    checkpoint, or gone, the ledger has seen to.)
    """
    stream, generation = generations.stream, generations.number
    checkpoint = lake.checkpoint(stream, generation)
    planned = newest_planned(lake, checkpoint)
    for table, path in exactly_once_tables(lake, stream).items():
        written = written_batch(lake, path, stream, generation=generation, table=table)
        if written is not None and (planned is None or planned < written):
            ends = "is missing" if planned is None else f"ends at batch {planned}"
            raise LakeError(
                f"the checkpoint {checkpoint} {ends}, but {path} has batch {written} of it: what "
                "it reads next would be lost. Put back the checkpoint, or a copy that is not older; "
                "or make a new one from bronze",
                code="of_other_times",
                subject=f"checkpoints/{stream}",
                command=f"./stateful reseed {stream} --apply",
            )
    row = generations.current
    if row is not None:
        if planned is not None:
            refuse_other_query(lake, row)
            is_settled(lake, checkpoint)  # LakeError where the newest batch does not say
            _refuse_older_bronze(lake, row, f"{checkpoint}/offsets/{planned}")
        elif is_reseeded(row):
            _refuse_other_bronze(lake, row)
        refuse_cut_off(lake, generations, row["source"])


def refuse_other_query(lake: Lake, row: GenerationRow) -> None:
    """LakeError for another query's checkpoint in place of the generation's: its batches may have
    the same numbers, and read the same bronze, and its states are others."""
    stream, known = row["stream"], row["query_id"]
    checkpoint = lake.checkpoint(stream, row["generation"])
    found = None if known is None else query_id(lake, checkpoint)
    if found != known and found is not None:  # without the file the query does not start
        raise LakeError(
            f"the checkpoint {checkpoint} is of another query ({found}) than {stream} has run "
            f"({known}), such as another stream's. Put back its own; or make a new one from bronze",
            code="of_other_times",
            subject=f"checkpoints/{stream}",
            command=f"./stateful reseed {stream} --apply",
        )


def note_query(lake: Lake, row: GenerationRow) -> None:
    """Record which query a generation's checkpoint is of, once its tables have a batch of it: a
    first run that has written none may begin again with another."""
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    if row["query_id"] is None and newest_committed(lake, checkpoint) is not None:
        known = {name: row[name] for name in KEY} | {"query_id": query_id(lake, checkpoint)}
        update_ops(lake, "generations", KEY, [known])


def _refuse_other_bronze(lake: Lake, row: GenerationRow) -> None:
    """A reseeded state that has read nothing yet goes on after a version of its own bronze."""
    path = lake.bronze(row["source"])
    bronze_id = str(open_table(path).metadata().id) if lake.is_delta_table(path) else None
    if bronze_id != row["bronze_id"]:
        raise LakeError(
            f"{path} is another table (id {bronze_id}) than {row['stream']} was reseeded from "
            f"({row['bronze_id']}). Put that back, or make all of it anew from what is there",
            code="of_other_times",
            subject=f"bronze/{row['source']}",
            command=f"./stateful reseed {row['stream']} --recompute --apply",
        )


def _refuse_older_bronze(lake: Lake, row: GenerationRow, offset: str) -> None:
    """A stream that has read more than there is would pass over what comes in its place."""
    stream, source = row["stream"], row["source"]
    path = lake.bronze(source)
    if not lake.is_delta_table(path):
        return
    bronze, table = read_position(lake, offset), open_table(path)
    if str(table.metadata().id) != bronze.table_id:
        raise LakeError(
            f"{path} is not the table that {stream} has read: it was ingested anew. Put that back, or "
            "make state and table anew from what is there",
            code="of_other_times",
            subject=f"bronze/{source}",
            command=f"./stateful reseed {stream} --apply",
        )
    if table.version() + 1 < bronze.version:
        anew = how_to_ingest_anew(source)
        raise LakeError(
            f"{path} ends at version {table.version()}, but {stream} has read version "
            f"{bronze.version - 1} of it: it is an older copy. Put back one that is not older; or, "
            f"{anew.words}",
            code="of_other_times",
            subject=f"bronze/{source}",
            command=anew.command,
        )


def pin_generation(
    lake: Lake,
    stream: Stream,
    generation: int,
    settings: dict[str, Any],
    code: str,
    event_schema: str | None = None,
    key_code: str | None = None,
) -> Pinned:
    """Record what the generation stands on before its first batch; check it ever after.

    Raises SettingsError, before anything is read, when a pinned setting has changed.
    """
    row = {"stream": stream.name, "generation": generation, **settings}
    made_by = {"code": code, "key_code": key_code, "event_schema": event_schema}
    first = append_ops(
        lake,
        "generations",
        [row | {"started_at": datetime.now(UTC), **made_by}],
        (f"{stream.name}/{generation}", 0),
    )
    pinned = read_generations(lake, stream.name).pinned(generation)
    if first:
        return Pinned(pinned, code_is_new=False)
    if not _is_begun(lake, pinned):
        new = {**made_by, "query_id": None}
        update_ops(lake, "generations", KEY, [row | new])
        return Pinned({**pinned, **row, **new}, code_is_new=False)
    refuse_other_settings(lake, pinned, settings)
    code_is_new = is_other_code(pinned, code) and pinned["code_changed_at"] is None
    return Pinned(pinned, code_is_new)


def _is_begun(lake: Lake, row: GenerationRow) -> bool:
    """Whether anything stands on what the generation was made with."""
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    return is_reseeded(row) or newest_planned(lake, checkpoint) is not None


def refuse_other_settings(lake: Lake, row: GenerationRow, settings: dict[str, Any]) -> None:
    """SettingsError when one of these is another than the generation was made with."""
    for name, value in settings.items():
        if row[name] != value and _is_begun(lake, row):
            raise _changed(lake, row, name, now=value)


def refuse_other_state(lake: Lake, row: GenerationRow, state_schema: str) -> None:
    """SettingsError when the state of a generation has another schema than the stream's file now.

    Who reads it by the file of now would read something else, or nothing.
    """
    if row["state_schema"] != state_schema:
        raise _changed(lake, row, "state_schema", now=state_schema)


def is_other_code(pinned: GenerationRow, code: str) -> bool:
    """Whether a state that the generation has made is not one that `code` would make."""
    known = pinned["code"]
    return known is not None and not (same_code(known, code) or serves(known, code))


def note_code(lake: Lake, pinned: Pinned, code: str, event_schema: str) -> GenerationRow:
    """Record before a run's first write what is new with it: events, and the state's code.

    Returns the generation's row, as it is then. With new code the state is no one code's any more.
    A run that fails before it has written anything has made nothing, so it changes nothing here.
    """
    row, new = pinned.row, dict[str, Any]()
    if row["event_schema"] != event_schema:
        new["event_schema"] = event_schema
    if pinned.code_is_new:
        new["code_changed_at"] = datetime.now(UTC)
    elif _rejects_from_now_on(row, code):
        new["code"] = code
    if new:
        update_ops(lake, "generations", KEY, [{name: row[name] for name in KEY} | new])
    return {**row, **new}


def _rejects_from_now_on(pinned: GenerationRow, code: str) -> bool:
    """Whether the generation's state is all by the same code that stopped at failures."""
    known = pinned["code"]
    of_one_code = known is not None and pinned["code_changed_at"] is None
    return of_one_code and not same_code(known, code) and serves(known, code)


def _changed(lake: Lake, row: GenerationRow, setting: str, now: Any) -> SettingsError:
    stream = row["stream"]
    checkpoint = lake.checkpoint(stream, row["generation"])
    is_empty = _is_without_rows(lake, row)
    way_out = "put that back, or make its state and its table anew from bronze"
    if is_empty:
        way_out = f"no batch has been written yet, so delete {checkpoint} and run again"
    elif setting == "state_schema":
        way_out += " (or with --from-state in place of --recompute, by the file's migrate_state)"
    return SettingsError(
        f"stream {stream}: {setting} is now {now}, but its state was made with {row[setting]}: {way_out}",
        code="settings_changed",
        subject=setting,
        command=None if is_empty else _reseed_for(stream, setting),
    )


def _is_without_rows(lake: Lake, row: GenerationRow) -> bool:
    stream, generation = row["stream"], row["generation"]
    tables = exactly_once_tables(lake, stream).items()
    written = (written_batch(lake, path, stream, generation, name) for name, path in tables)
    return not is_reseeded(row) and all(batch is None for batch in written)


def _reseed_for(stream: str, setting: str) -> str:
    option = "" if setting in CHANGE_NO_STATE else " --recompute"
    # The table has a column less, or one more.
    first = f"./stateful set-aside tables/{stream} --apply && " if setting == "output_mode" else ""
    return f"{first}./stateful reseed {stream}{option} --apply"
