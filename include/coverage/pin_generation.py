"""What a generation is pinned to, and whether checkpoint and tables fit.

Spark pins the number of state partitions by itself, silently, and knows nothing of buckets:
under another number keys would look for their states where they are not.
"""

from datetime import UTC, datetime
from typing import Any

from include.checkpoint.bronze_readers import refuse_cut_off
from include.checkpoint.checkpoint_files import newest_planned, plan_hash
from include.checkpoint.committed_batch import is_settled, read_position
from include.coverage.record import StreamRecord
from include.lake.delta_log import open_table
from include.lake.generations import GenerationRow, Generations, is_reseeded
from include.lake.how_to_mend import how_to_ingest_anew
from include.lake.paths import Lake, LakeError
from include.savepoints.manifest import same_code, serves
from include.settings import SettingsError, Stream

# A savepoint made under another one of these still serves a reseed.
CHANGE_NO_STATE = ("buckets", "state_partitions", "watermark_delay_ms")


def refuse_foreign_checkpoint(lake: Lake, generations: Generations, record: StreamRecord) -> None:
    """LakeError when the checkpoint and what was written under it are not of the same time.

    Under a missing or older checkpoint batches get numbers that the tables take for
    written: their rows would be dropped without a word. (That the table is not older than the
    checkpoint, or gone, `verify.py` has seen to.)
    """
    stream, generation, row = generations.stream, generations.number, generations.current
    checkpoint = lake.checkpoint(stream, generation)
    planned, written = newest_planned(lake, checkpoint), record.batch_of(generation)
    if written is not None and (planned is None or planned < written):
        ends = "is missing" if planned is None else f"ends at batch {planned}"
        raise _other_checkpoint(
            stream,
            f"{checkpoint} {ends}, but the table has batch {written} of it: what it reads next "
            "would be lost. Put back the checkpoint, or a copy that is not older",
        )
    if row is not None:
        if planned is not None:
            refuse_other_plan(lake, generations, record)
            is_settled(lake, checkpoint)  # LakeError where the newest batch does not say
            _refuse_older_bronze(lake, row, f"{checkpoint}/offsets/{planned}")
        elif is_reseeded(row):
            _refuse_other_bronze(lake, row)
        refuse_cut_off(lake, generations, row["source"])


def refuse_other_plan(lake: Lake, generations: Generations, record: StreamRecord) -> None:
    """LakeError for a checkpoint of another life: its batches may have the same numbers, and have read
    the same bronze, and its states are others."""
    checkpoint = lake.checkpoint(generations.stream, generations.number)
    batch_id = record.batch_of(generations.number)
    if batch_id is not None and plan_hash(lake, checkpoint, batch_id) != record.plan:
        raise _other_checkpoint(
            generations.stream,
            f"{checkpoint} has planned another batch {batch_id} than the one that is in the table. Put "
            "back its own",
        )


def _other_checkpoint(stream: str, what: str) -> LakeError:
    return LakeError(
        f"the checkpoint {what}; or make a new one from bronze",
        code="of_other_times",
        subject=f"checkpoints/{stream}",
        command=f"./stateful reseed {stream} --apply",
    )


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


def refuse_other_settings(row: GenerationRow, settings: dict[str, Any]) -> None:
    """SettingsError when one of these is another than the generation was made with."""
    for name, value in settings.items():
        if row[name] != value:
            raise _changed(row, name, now=value)


def refuse_other_state(row: GenerationRow, state_schema: str) -> None:
    """SettingsError when the state of a generation has another schema than the stream's file now.

    Who reads it by the file of now would read something else, or nothing.
    """
    if row["state_schema"] != state_schema:
        raise _changed(row, "state_schema", now=state_schema)


def is_other_code(pinned: GenerationRow, code: str) -> bool:
    """Whether a state that the generation has made is not one that `code` would make."""
    known = pinned["code"]
    return known is not None and not (same_code(known, code) or serves(known, code))


def refuse_new_code(record: StreamRecord, stream: Stream, code: str) -> None:
    """SettingsError when a run would be the first by its code, and its entry wants a person to decide."""
    own = record.own
    if stream.on_code_change == "run" or own is None or serves(own.codes[-1], code):
        return
    if not same_code(own.codes[-1], code):
        raise SettingsError(
            f"the code of {stream.name} is another than its newest run's, as `./stateful status "
            f"{stream.name}` says: make its table and state anew by it; or set on_code_change to run for "
            "one run, which goes on with the state of before",
            code="code_changed",
            subject=stream.name,
            command=f"./stateful reseed {stream.name} --apply",
        )


def with_code(row: GenerationRow, code: str, event_schema: str) -> GenerationRow:
    """The row with what is new with a run: its events, and the state's code.

    With new code the state is no one code's any more.
    """
    new: dict[str, Any] = {"event_schema": event_schema}
    if row["code_changed_at"] is None and not same_code(row["code"], code):
        if is_other_code(row, code):
            new["code_changed_at"] = datetime.now(UTC)
        elif row["code"] is not None:  # it rejects from now on
            new["code"] = code
    return GenerationRow({**row, **new})


def _changed(row: GenerationRow, setting: str, now: Any) -> SettingsError:
    way_out = "put that back, or make its state and its table anew from bronze"
    if setting == "state_schema":
        way_out += " (or with --from-state in place of --recompute, by the file's migrate_state)"
    return SettingsError(
        f"stream {row['stream']}: {setting} is now {now}, but its state was made with {row[setting]}: "
        f"{way_out}",
        code="settings_changed",
        subject=setting,
        command=_reseed_for(row["stream"], setting),
    )


def _reseed_for(stream: str, setting: str) -> str:
    if setting == "output_mode":  # the table has a column less, or one more
        return f"./stateful set-aside tables/{stream} --apply && ./stateful reseed {stream} --recompute --apply"
    option = "" if setting in CHANGE_NO_STATE else " --recompute"
    return f"./stateful reseed {stream}{option} --apply"
