"""Plans of rebuilds: bronze version, end, starting savepoint, and what is replaced. Made without a JVM."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import count
from typing import Any

from include.fold.admission import LAST_INSTANT_US, instant_of, micros_of, parse_instant
from include.fold.group_state import GroupStateTimeout
from include.fold.product_table import can_keep_rows
from include.ingest.ingest_log import refuse_changed_bronze
from include.lake.delta_log import open_table, why_unreadable
from include.lake.errors import SettingsError, wrong_argument
from include.lake.generations import GenerationRow, has_written
from include.settings import Stream
from include.stream.bronze import BronzeVersion, count_before, count_taken_back, newest_bronze
from include.stream.manifest import (
    Savepoint,
    StartingSavepoint,
    StreamIdentity,
    choose_starting_savepoint,
    newest_holding_all,
    savepoints_of,
)
from include.stream.open_stream import OpenStream
from include.stream.record import BEGINNING_US, FOR_EVER_US, StreamRecord
from include.stream.restate_plan import Replay, seconds_for
from include.stream.stream_identity import code_parts, initial_fingerprint
from include.stream.stream_status import StreamStatus, dead_letters_status, judged
from include.stream_definition import pinned_settings
from include.text_table import counted

IN_PROCESSING_TIME = GroupStateTimeout.ProcessingTimeTimeout


@dataclass(frozen=True)
class RebuildOptions:
    """The options of a rebuild; None is as it is now."""

    buckets: int | None = None
    partitions: int | None = None
    until: datetime | None = None  # None: as far as the bronze version is complete
    full_refresh: bool = False  # from the beginning, whatever savepoints there are
    migrate_state: bool = False  # from a savepoint of the older state schema, its states mapped
    forward: bool = False  # from a savepoint of the former code, whose rows before it stay

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "RebuildOptions":
        """The options among the given values; SettingsError when `until` is no instant."""
        named = {name: given[name] for name in cls.__dataclass_fields__ if name in given}
        until = named.pop("until", None)
        return cls(**named, until=parse_instant("UNTIL", until) if until else None)

    @property
    def keeps_former_rows(self) -> bool:
        """True if rows stay right that the former code made."""
        return self.migrate_state or self.forward

    def text(self) -> str:
        """Return the options as JSON."""
        return json.dumps(asdict(self), default=datetime.isoformat)

    def arguments(self) -> str:
        """Return the options as the command line takes them, each behind a space."""
        given = ((name.replace("_", "-"), of) for name, of in asdict(self).items() if of)
        return "".join(f" --{name}" + ("" if of is True else f" {of}") for name, of in given)


def _starting_savepoint(
    opened: OpenStream,
    bronze: BronzeVersion,
    options: RebuildOptions,
    at_most_us: int,
    right_until_us: int,
) -> StartingSavepoint:
    """The start of a rebuild of a table that is right until then, at most at `at_most_us`."""
    identity = opened.identity
    retained_us = at_most_us  # an update table is replaced as a whole
    if identity.output_mode == "append":
        retained_us = min(at_most_us, right_until_us) if _can_keep_rows(opened) else BEGINNING_US
    if options.keeps_former_rows:
        return mapped_start(opened, bronze, retained_us)
    if options.full_refresh:
        return StartingSavepoint(None, identity.since_us, 0)
    known = savepoints_of(opened.lake, opened.name)
    return choose_starting_savepoint(known, identity, bronze, at_most_us=retained_us)


def refuse_migration(opened: OpenStream, options: RebuildOptions) -> None:
    """Raise SettingsError unless the stream's `migrate_state` can map its state, or --forward keep it."""
    current, name, fold = opened.row, opened.name, opened.fold
    if options.full_refresh or (options.forward and options.migrate_state):
        said = (
            "--migrate-state maps states, --forward leaves them, --full-refresh computes them again"
        )
        raise wrong_argument("--migrate-state", f"{said}: give one of them")
    is_other = current is not None and current["state_schema"] != opened.identity.state_schema
    if current is None:
        said, command = f"{name} has no state yet", f"./stateful stream {name}"
        raise SettingsError(said, code="nothing_there", subject=name, command=command)
    if options.forward and is_other:
        raise _not_migratable(name, "its state is of another schema, and --forward leaves states")
    if not options.forward and not is_other:
        said, command = f"{name} has no state to map", f"./stateful rebuild {name} --apply"
        raise SettingsError(said, code="nothing_there", subject=name, command=command)
    if options.migrate_state and opened.definition.migrate_state is None:
        said = "STREAM has no migrate_state=, a function from a key's old state to the new one"
        raise _not_migratable(name, said)
    # States are mapped one by one: neither the key nor their clock may differ.
    now = pinned_settings(opened.stream, fold)
    changed = [part for part in ("source", "key") if current[part] != now[part]]
    if fold.keys.is_derived:
        changed.append("the code, which makes the key,")
    # The keys' types have commas themselves: decimal(12,2), struct<a: string, b: bigint>.
    if len({pins["state_schema"].partition(", state struct<")[0] for pins in (current, now)}) > 1:
        changed.append("the type of the key")
    if (current["timeout"] == IN_PROCESSING_TIME) != (now["timeout"] == IN_PROCESSING_TIME):
        changed.append("the clock (event time or processing time)")
    if changed:
        said = f"{', '.join(changed)} changed, and states alone go over"
        raise _not_migratable(name, said)


def _not_migratable(stream: str, said: str, command: str | None = None) -> SettingsError:
    said = f"{stream}: {said}"
    command = command or f"./stateful rebuild {stream} --full-refresh --apply"
    return SettingsError(said, code="not_migratable", subject=stream, command=command)


def mapped_start(opened: OpenStream, bronze: BronzeVersion, at_most_us: int) -> StartingSavepoint:
    """The newest valid savepoint of the former code and state schema, its states to be mapped."""
    name, row = opened.name, opened.row or GenerationRow()
    older = [
        savepoint
        for savepoint in savepoints_of(opened.lake, name)
        if (savepoint.state_schema, savepoint.code) == (row["state_schema"], row["code"] or "")
    ]
    best = newest_holding_all(older, opened.identity, bronze, at_most_us)
    if best is None:
        raise _not_migratable(
            name,
            "no savepoint of its older state holds all rows before it, with a table that is right until "
            "there: give --full-refresh; or put its former file back, and the new one again after",
            f"./stateful rebuild {name} --apply" if older else f"./stateful savepoint {name}",
        )
    return StartingSavepoint(best, best.until_us, best.events, mapped=True)


def _can_keep_rows(opened: OpenStream) -> bool:
    """True if rows of the table can stay."""
    path = opened.lake.table(opened.name)
    is_there = opened.row is not None and opened.lake.is_delta_table(path)
    return is_there and can_keep_rows(open_table(path), opened.definition)


def dead_letters_retained_us(opened: OpenStream, identity: StreamIdentity) -> int:
    """The instant before which dead letters can stay; FOR_EVER_US where that is decided by the table."""
    lake = opened.lake
    has_some = opened.fold.keeps_dead_letters or lake.is_delta_table(lake.dead_letters(opened.name))
    if identity.output_mode == "append" or not has_some:
        return FOR_EVER_US
    return dead_letters_status(opened, identity).right_until_us


@dataclass(frozen=True, kw_only=True)
class RebuildPlan(Replay):
    """The plan of a rebuild."""

    kind = "rebuild"
    buckets: int
    partitions: int
    events: int  # bronze rows before `until_us`, and not before the initial state
    before_initial_state: int  # bronze rows
    pending: int  # bronze rows from `until_us` on, without those that are taken back
    taken_back: int  # the others
    estimated_seconds: float | None  # None: no replay of the stream is recorded
    now: str  # the verdict on the table
    moved: str | None  # why the table's log cannot be read: the table is moved aside

    @property
    def from_us(self) -> int | None:
        """The instant of the starting savepoint, before which rows of an append table stay."""
        is_append = self.opened.identity.output_mode == "append"
        return self.dead_letters_from_us if is_append else None

    @property
    def end_us(self) -> None:
        """None: live emits again what it has emitted from `until_us` on."""
        return None

    @property
    def dead_letters_from_us(self) -> int | None:
        """The first instant whose dead letters are replaced; None: all are."""
        return self.starting.until_us if self.starting.savepoint else None

    def record(self, run_id: str, savepoint: Savepoint) -> StreamRecord:
        """The record with the new generation, which begins with `savepoint`."""
        seed = {
            "seed_savepoint": savepoint.savepoint_id,
            "seed_events": savepoint.events + self.taken_back,
            "switched_at_us": micros_of(datetime.now(UTC)),
        }
        record = super().record(run_id, savepoint)
        return replace(record, row=GenerationRow({**self.row, **seed}))

    @cached_property
    def row(self) -> GenerationRow:
        """The generation that it makes, without its seed."""
        opened = self.opened
        known = {
            **pinned_settings(opened.stream, opened.fold),
            "stream": opened.name,
            "generation": _new_generation(opened),
            "buckets": self.buckets,
            "state_partitions": self.partitions,
            "initial_state": initial_fingerprint(opened.lake, opened.generations),
            "initial_as_of_us": opened.identity.since_us,
            "until_us": self.until_us,
            "bronze_id": self.bronze.table_id,
            "bronze_version": self.bronze.version,
            "bronze_ingested_at_us": self.bronze.ingested_at_us,
            "seed_before_initial_state": self.before_initial_state,
            "seed_pending": self.pending,
            "code": self.code,
            "parts": code_parts(opened.declared),
        }
        return GenerationRow(known)

    def text(self) -> str:
        """Return the plan for a terminal, as a list in Markdown."""
        rows = counted(self.events - self.starting.events, "row")
        starting = (
            f"{self.starting.text()}{', whose states go over' if self.starting.mapped else ''}"
        )
        where = "all its table"
        if self.from_us is not None:
            where = f"its table from {_at(self.from_us)} on"
        parts = [
            f"rebuild {self.opened.name} as of {_at(self.until_us)}; now it {self.now}",
            f"replays {rows} of bronze (version {self.bronze.version}) from {starting}",
            f"replaces {where}"
            if self.moved is None
            else f"moves its table into set_aside/ ({self.moved})",
            f"goes on with {counted(self.pending, 'waiting row')}, "
            f"{counted(self.buckets, 'bucket')}, {counted(self.partitions, 'state partition')}",
        ]
        if self.estimated_seconds is not None:
            parts.append(f"takes about {self.estimated_seconds:.0f} s")
        return "\n- ".join(parts)


def plan_rebuild(opened: OpenStream, options: RebuildOptions) -> RebuildPlan:
    """Plan a rebuild; LakeError while bronze is being amended, or when others have changed it."""
    who = f"a rebuild of {opened.name}"
    opened.amendments.refuse_before_amended(who)
    refuse_changed_bronze(opened.lake, opened.source, who)
    return plan_later_rebuild(opened, options)


def plan_later_rebuild(opened: OpenStream, options: RebuildOptions) -> RebuildPlan:
    """Plan a rebuild that is made once an amendment is done, as at the end of an erasure."""
    lake, stream = opened.lake, opened.declared
    identity, current = opened.identity, opened.row
    moved = why_unreadable(lake, lake.table(stream.name), is_log_enough=True)
    if options.keeps_former_rows:
        refuse_migration(opened, options)
    bronze = newest_bronze(lake, stream.source)
    until_us = _until_us(stream, identity, bronze, options=options)
    before = identity  # of a migration those rows are right that the former code made
    if options.keeps_former_rows and current is not None:
        before = replace(identity, code=current["code"])
    table_status = judged(opened, before)
    at_most_us = min(until_us, dead_letters_retained_us(opened, before))
    right_until_us = table_status.right_until_us
    starting = _starting_savepoint(opened, bronze, options, at_most_us, right_until_us)
    since_us, column = identity.since_us, identity.time_column
    (events,) = count_before(bronze, column, since_us, cutoffs_us=[until_us])
    everything = count_before(bronze, column, None, cutoffs_us=[until_us, LAST_INSTANT_US])
    taken_back = count_taken_back(bronze, until_us)
    now = current or GenerationRow()
    return RebuildPlan(
        opened=opened,
        buckets=options.buckets or now["buckets"] or stream.buckets,
        partitions=options.partitions or now["state_partitions"] or stream.state_partitions,
        bronze=bronze,
        until_us=until_us,
        starting=starting,
        events=events,
        before_initial_state=everything[0] - events,
        pending=everything[1] - everything[0] - taken_back,
        taken_back=taken_back,
        estimated_seconds=seconds_for(lake, stream.name, events - starting.events),
        now=StreamStatus(opened, table_status).text(),
        moved=moved,
    )


def _until_us(
    stream: Stream, identity: StreamIdentity, bronze: BronzeVersion, options: RebuildOptions
) -> int:
    complete_us = bronze.complete_until_us(identity.time_column, identity.delay_us)
    # An initial state stands for all before it, whether or not bronze has come so far.
    until_us = max(complete_us, identity.since_us or complete_us)
    if options.until is None:
        return until_us
    wanted_us = micros_of(options.until)
    if wanted_us > until_us:
        raise wrong_argument(
            "UNTIL",
            f"UNTIL is {_at(wanted_us)}, and by bronze/{stream.source} {stream.name} is complete until "
            f"{_at(until_us)} only",
        )
    if identity.since_us is not None and wanted_us < identity.since_us:
        raise SettingsError(
            f"UNTIL is {_at(wanted_us)}, before the initial state of {_at(identity.since_us)}",
            code="before_initial_state",
            subject=stream.name,
        )
    return wanted_us


def _new_generation(opened: OpenStream) -> int:
    """A number that no checkpoint and no table has seen: batches under one would be passed over."""
    known = 0 if opened.row is None else opened.row["generation"]
    numbers = count(1 + max(known, opened.generations.newest_folder or 0))
    return next(n for n in numbers if not has_written(opened.lake, opened.name, n))


def _at(micros: int) -> str:
    return f"{instant_of(micros):%Y-%m-%d %H:%M:%S} UTC"
