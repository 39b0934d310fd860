"""What a generation is pinned to.

Spark pins the number of state partitions by itself, silently, and knows nothing of buckets:
under another number keys would look for their states where they are not.
"""

from datetime import UTC, datetime
from typing import Any

from include.coverage.record import StreamRecord
from include.lake.generations import GenerationRow
from include.savepoints.manifest import same_code, serves
from include.settings import SettingsError, Stream

# A savepoint made under another one of these still serves a reseed.
CHANGE_NO_STATE = ("buckets", "state_partitions", "watermark_delay_ms")


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
        elif row["code"] is not None:  # it keeps dead letters from now on
            new["code"] = code
    return GenerationRow({**row, **new})


def _changed(row: GenerationRow, setting: str, now: Any) -> SettingsError:
    way_out = "put that back, or make its state and its table anew from bronze"
    if setting == "state_schema":
        way_out += " (or with --from-state in place of --recompute, by the file's migrate_state)"
    option = "" if setting in CHANGE_NO_STATE else " --recompute"
    return SettingsError(
        f"stream {row['stream']}: {setting} is now {now}, but its state was made with {row[setting]}: "
        f"{way_out}",
        code="settings_changed",
        subject=setting,
        command=f"./stateful reseed {row['stream']}{option} --apply",
    )
