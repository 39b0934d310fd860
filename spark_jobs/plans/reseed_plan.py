"""What a reseed would do: pinned bronze, its `until`, its base, what is replaced. Without a JVM."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from include.backfill.late_dates import covers_of, first_stale, late_rows
from include.backfill.plan_recompute import estimate_seconds
from include.generations import INTENT, current_row, generation_rows, open_intent
from include.instants import instant_of, micros_of
from include.lake import Lake
from include.savepoints.bronze_pin import BronzePin, count_before, pin_bronze
from include.savepoints.choose_base import Base, choose_base
from include.savepoints.identity import StreamIdentity
from include.savepoints.lineage import same_code
from include.savepoints.manifest import savepoints_of
from include.streams import SettingsError, Stream
from spark_jobs.fold.admission import LAST_INSTANT_US
from spark_jobs.lake.initial_state import read_fingerprint
from spark_jobs.plans.migrate_plan import MIGRATE, mapped_base, refuse_migration
from spark_jobs.plans.reseed_options import ReseedOptions
from spark_jobs.plans.stream_identity import stream_identity
from spark_jobs.stream_definition import load_definition, pinned_settings


@dataclass(frozen=True)
class ReseedPlan:
    """A reseed, decided."""

    identity: StreamIdentity
    options: ReseedOptions
    buckets: int
    partitions: int
    pin: BronzePin
    until_us: int
    base: Base
    events: int  # bronze rows before until
    excluded: int  # before the initial state
    pending: int  # from until on
    estimated_seconds: float | None

    def text(self) -> str:
        """The plan for people."""
        base = "from the beginning"
        if self.base.savepoint is not None:
            base = f"from savepoint {self.base.savepoint.savepoint_id}"
        if self.base.mapped:
            base += ", its states mapped by migrate_state"
        replaced = "all rows"
        if self.identity.output_mode == "append" and self.base.until_us is not None:
            replaced = f"rows from {_at(self.base.until_us)} on"
        took = "" if self.estimated_seconds is None else f", about {self.estimated_seconds:.0f} s"
        return (
            f"reseed {self.identity.stream} as of {_at(self.until_us)}: replays "
            f"{self.events - self.base.events:,} rows of bronze (version {self.pin.version}) {base}; "
            f"replaces {replaced} of its table, and goes on with {self.pending:,} rows that wait; "
            f"{self.buckets} buckets, {self.partitions} state partitions{took}"
        )


def plan_reseed(lake: Lake, stream: Stream, options: ReseedOptions) -> ReseedPlan:
    """The plan. Raises SettingsError for options that cannot be, LakeError without bronze.

    One that was cut off under other code, which nobody can finish, is begun anew by it.
    """
    identity = stream_identity(lake, stream)
    options = _begun_anew(lake, identity, options)
    if options.from_state:
        refuse_migration(lake, stream, identity, options.recompute)
    pin = pin_bronze(lake, stream.source)
    until_us = _until_us(stream, identity, pin, options)
    base = _base(lake, stream, identity, pin, until_us, options)
    since_us, column = identity.since_us, identity.time_column
    (events,) = count_before(pin, column, since_us, [until_us])
    everything = count_before(pin, column, None, [until_us, LAST_INSTANT_US])
    current = current_row(lake, stream.name) or {}
    return ReseedPlan(
        identity,
        options,
        _count("BUCKETS", options.buckets, current.get("buckets") or stream.buckets),
        _count(
            "PARTITIONS",
            options.partitions,
            current.get("state_partitions") or stream.state_partitions,
        ),
        pin,
        until_us,
        base,
        events,
        everything[0] - events,
        everything[1] - everything[0],
        estimate_seconds(lake, stream.name, events - base.events),
    )


def _count(name: str, wanted: int | None, now: int) -> int:
    if wanted is not None and wanted < 1:
        raise SettingsError(f"{name} must be at least 1, not {wanted}")
    return wanted or now


def _until_us(
    stream: Stream, identity: StreamIdentity, pin: BronzePin, options: ReseedOptions
) -> int:
    settled_us = pin.settled_until_us(identity.time_column, identity.delay_us)
    # An initial state stands for all before it, whether or not bronze has come so far.
    until_us = max(settled_us, identity.since_us or settled_us)
    if options.until is None:
        return until_us
    wanted_us = micros_of(options.until)
    if wanted_us > until_us:
        raise SettingsError(
            f"UNTIL is {_at(wanted_us)}, but bronze/{stream.source} has settled {stream.name} only "
            f"until {_at(until_us)}: give that or an earlier instant"
        )
    if identity.since_us is not None and wanted_us < identity.since_us:
        raise SettingsError(
            f"UNTIL is {_at(wanted_us)}, before the initial state of {_at(identity.since_us)}"
        )
    return wanted_us


def _begun_anew(lake: Lake, identity: StreamIdentity, options: ReseedOptions) -> ReseedOptions:
    """What an open reseed of other code may have written is replaced, wherever that is."""
    begun = open_intent(lake, identity.stream)
    if begun is None or same_code(begun["code"], identity.code):
        return options
    migrating = begun["reseed"] == MIGRATE and begun["state_schema"] == identity.state_schema
    if options.from_state or (migrating and not options.recompute):
        return replace(options, from_state=True)
    return replace(options, recompute=True)


def _base(
    lake: Lake,
    stream: Stream,
    identity: StreamIdentity,
    pin: BronzePin,
    until_us: int,
    options: ReseedOptions,
) -> Base:
    """The newest clean savepoint from which on all of the table is made right."""
    current = current_row(lake, stream.name)
    if options.recompute or current is None:  # a new stream has no row to keep
        return Base(None, identity.since_us, 0)
    is_append = identity.output_mode == "append"
    other_code = current["code"] != identity.code or current["code_changed_at"] is not None
    if is_append and other_code and not options.from_state:
        return Base(None, identity.since_us, 0)  # rows of other code are in the table
    at_most_us = _right_until(lake, stream, until_us) if is_append else until_us
    if options.from_state:
        return mapped_base(lake, identity, pin, at_most_us)
    return choose_base(savepoints_of(lake, stream.name), identity, pin, at_most_us)


def _right_until(lake: Lake, stream: Stream, until_us: int) -> int:
    """Before which instant, at most `until_us`, no row of an append table lacks a late row."""
    stale = first_stale(late_rows(lake, stream), covers_of(lake, stream.name, "append"))
    return until_us if stale is None else min(until_us, micros_of(stale))


def intent_row(lake: Lake, stream: Stream, plan: ReseedPlan) -> dict[str, Any]:
    """The row of `ops/generations` that says a reseed has begun, and all that it has decided."""
    generations = [row["generation"] for row in generation_rows(lake, stream.name)]
    base, pin, identity = plan.base, plan.pin, plan.identity
    pinned = pinned_settings(stream, load_definition(stream).fold)
    return {
        **pinned,
        "stream": stream.name,
        "generation": max(generations, default=0) + 1,
        "status": INTENT,
        "started_at": datetime.now(UTC),
        "buckets": plan.buckets,
        "state_partitions": plan.partitions,
        "reseed": _kind(plan.options),
        "options": plan.options.text(),
        "initial_state": read_fingerprint(lake, stream.name),
        "initial_as_of": None if identity.since_us is None else instant_of(identity.since_us),
        "base_savepoint": base.savepoint.savepoint_id if base.savepoint else None,
        "base_until": None if base.until_us is None else instant_of(base.until_us),
        "until": instant_of(plan.until_us),
        "bronze_id": pin.table_id,
        "bronze_version": pin.version,
        "bronze_ingested_at": instant_of(pin.ingested_at_us),
        "seed_excluded": plan.excluded,
        "seed_pending": plan.pending,
        "code": base.lineage(identity.code),
    }


def _kind(options: ReseedOptions) -> str:
    if options.from_state:
        return MIGRATE
    return "recompute" if options.recompute else "reseed"


def _at(micros: int) -> str:
    return f"{instant_of(micros):%Y-%m-%d %H:%M:%S} UTC"
