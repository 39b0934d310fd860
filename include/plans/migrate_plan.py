"""What a reseed can begin with after a change of the state schema: savepoints of the older one.

Without a JVM. Whether the mapping itself works is seen when the job maps each state.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from include.fold.deduplicate import SEEN
from include.fold.definition import KeyedFold
from include.fold.group_state import TIMERS, GroupStateTimeout
from include.lake.errors import wrong_argument
from include.lake.generations import GenerationRow
from include.plans.open_stream import OpenStream
from include.plans.stream_identity import key_fingerprint
from include.savepoints.bronze_pin import BronzePin
from include.savepoints.choose_base import Base, newest_holding_all
from include.savepoints.manifest import savepoints_of
from include.settings import SettingsError
from include.stream_definition import pinned_settings
from include.text_table import counted

MIGRATE = "migrate"  # why a generation was seeded
IN_PROCESSING_TIME = GroupStateTimeout.ProcessingTimeTimeout


def refuse_migration(opened: OpenStream, recompute: bool) -> None:
    """SettingsError unless the state of the stream is one that its `migrate_state` can map."""
    if recompute:
        raise wrong_argument(
            "--from-state",
            "--from-state maps states, --recompute makes them anew from the beginning: give one of them",
        )
    current, name = opened.row, opened.name
    if current is None:
        raise SettingsError(
            f"{name} has no state yet to migrate: run it",
            code="nothing_there",
            subject=name,
            command=f"./stateful stream {name}",
        )
    if current["state_schema"] == opened.identity.state_schema:
        raise SettingsError(
            f"the state of {name} has the schema of its file already, so there is nothing to "
            "migrate: leave --from-state out",
            code="nothing_there",
            subject=name,
            command=f"./stateful reseed {name} --apply",
        )
    definition = opened.definition
    if definition.migrate_state is None:
        raise SettingsError(
            f"STREAM in include/streams/{name}.py has no migrate_state=, the function from a key's old "
            "state (a dict of its fields) to its new one: write that function, and add "
            "migrate_state=migrate_state to STREAM, or make all of it anew",
            code="not_migratable",
            subject=name,
            command=f"./stateful reseed {name} --recompute --apply",
        )
    now = pinned_settings(opened.stream, definition.fold)
    _refuse_other_keys(current, now | {"key_code": key_fingerprint(definition.fold)}, name)


def _refuse_other_keys(current: GenerationRow, now: Mapping[str, Any], stream: str) -> None:
    """States are mapped one by one: neither what they are kept by nor their clock may differ."""
    changed = [name for name in ("source", "key") if current[name] != now[name]]
    if current["key_code"] != now["key_code"]:
        changed.append("the code of the key, or what it needs,")
    if _key_type(current) != _key_type(now):
        changed.append("the type of the key")
    if (current["timeout"] == IN_PROCESSING_TIME) != (now["timeout"] == IN_PROCESSING_TIME):
        changed.append("the clock (event time or processing time)")
    if changed:
        raise SettingsError(
            f"{stream}: {', '.join(changed)} changed, and migrate_state maps states only: make "
            "them anew",
            code="not_migratable",
            subject=stream,
            command=f"./stateful reseed {stream} --recompute --apply",
        )


def what_is_not_kept(current: GenerationRow, fold: KeyedFold) -> str | None:
    """Of what keys should have beside their states, for people; None when all of it is."""
    was: str = current["state_schema"]
    told = []
    known = json.loads(current["settings"] or "{}").get("deduplicate")
    if fold.seen is not None and f", {SEEN} {fold.seen.column.kind}" not in was:
        told.append("nothing is seen yet: deduplicate= is new, or has another `by`")
    elif fold.seen is not None and known != str(fold.deduplicate):
        told.append(f"what is seen was kept {known}")
    timers = re.search(rf", {TIMERS} struct<([^<>]*)>$", was)
    names = [part.partition(":")[0] for part in timers[1].split(", ")] if timers else []
    if gone := [name for name in names if name not in fold.timers]:
        told.append(f"of timers= no {', '.join(gone)} is kept, as none is called so")
    return "; ".join(told) or None


def _key_type(pinned: Mapping[str, Any]) -> str:
    schema: str = pinned["state_schema"]
    # The keys' types have commas themselves: decimal(12,2), struct<country: string, customer: bigint>.
    return schema.partition(", state struct<")[0]


def mapped_base(opened: OpenStream, pin: BronzePin, at_most_us: int) -> Base:
    """The newest clean savepoint of what the stream ran on until now, its states to be mapped.

    Raises SettingsError when there is none that is not after `at_most_us`.
    """
    name, current = opened.name, opened.row
    older = [
        savepoint
        for savepoint in savepoints_of(opened.lake, name)
        if current is not None
        and savepoint.state_schema == current["state_schema"]
        and savepoint.code is not None
        and savepoint.code == current["code"]
    ]
    if not older:
        raise SettingsError(
            f"{name} has no savepoint of its older state: give --recompute; or put its former file back, and the new one "
            "again after",
            code="not_migratable",
            subject=name,
            command=f"./stateful savepoint {name}",
        )
    best = newest_holding_all(older, opened.identity, pin, at_most_us)
    if best is None:
        raise SettingsError(
            f"of {counted(len(older), 'savepoint')} of the older state of {name} none holds all rows of "
            "bronze before it, late ones too, with a table that is right until there: give "
            "--recompute; or put its former file back, and the new one again after a reseed, which "
            "takes late rows in and writes one",
            code="not_migratable",
            subject=name,
            command=f"./stateful reseed {name} --apply",
        )
    return Base(best, best.until_us, best.events, mapped=True)
