"""Profiles: under which settings a stream's state store runs, numbered in `ops/rocksdb_profiles`.

A profile is all of it: our fixed values, the tuned one, and what is held by hand. Its number is in
each row of `ops/batches`, so that runs before a change and after it can be told apart. Whoever
changes code, hand settings or machine gets a new number.

Its memory is by the machine and the stream: Spark's limit is for the process (an executor; in
local mode the driver), for all its stores together. It is a limit, not a reservation: a store
takes what it needs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from include.care.rocksdb.settings import (
    HIGH_PRIORITY,
    MAX_MEMORY_MB,
    RATIOS_TOGETHER,
    SETTINGS,
    WRITE_BUFFER_RATIO,
    hand_settings,
)
from include.lake.ops import append_ops, newest_transaction, not_ahead, read_ops, update_ops
from include.lake.paths import Lake
from include.settings import MIB, Stream

TABLE = "rocksdb_profiles"
PER_PARTITION_MB = 64
FLOOR_MB = 64
# Two jobs may run at once, each with a heap and with Python workers beside it.
MACHINE_SHARE = 8
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

Settings = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a run sets, and what became of it: default, trial, kept or rolled_back."""

    number: int
    settings: Settings  # by Spark's short names; empty when the row cannot be read
    verdict: str
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = field(default=None, compare=False)  # when put on record
    judged_at: datetime | None = field(default=None, compare=False)
    held: frozenset[str] = frozenset()  # what the stream's entry holds by hand

    @property
    def is_recorded(self) -> bool:
        return self.created_at is not None

    def conf(self) -> dict[str, str]:
        """The settings as a Spark session takes them."""
        return {SETTINGS[name].full_name: value for name, value in self.settings.items()}

    def is_broken_off(self, failed: Sequence[datetime]) -> bool:
        """Whether it is a trial, and a run failed since it began, or may have.

        Which came after one that was begun under a clock that was ahead, nobody can say.
        """
        began, latest = self.created_at, not_ahead()
        if self.verdict != "trial" or began is None:
            return False
        return began > latest or any(began <= at <= latest for at in failed)


def profile_for_run(lake: Lake, stream: Stream) -> Profile:
    """The profile for a run that starts now, on record before its first batch.

    SettingsError when the stream's entry holds a setting that is unknown or out of range.
    """
    profile = active_profile(lake, stream)
    return profile if profile.is_recorded else record_profile(lake, stream, profile)


def active_profile(lake: Lake, stream: Stream, machine_bytes: int | None = None) -> Profile:
    """The profile that the next run of `stream` has; the defaults before anything is recorded.

    A trial ends with the first run that fails: whatever the cause, the next has the profile
    before. `machine_bytes` is of this machine unless given.
    """
    where = {"subject": stream.name, "job": "run_stream", "outcome": "failed"}
    failed = read_ops(lake, "runs", where, ("started_at",))["started_at"].to_pylist()
    return choose_profile(read_profiles(lake, stream), failed, stream, machine_bytes)


def choose_profile(
    recorded: Sequence[Profile],
    failed: Sequence[datetime],
    stream: Stream,
    machine_bytes: int | None = None,
) -> Profile:
    """`active_profile` of what is on record: the profiles in order, and when runs failed."""
    machine = machine_memory_bytes() if machine_bytes is None else machine_bytes
    held = frozenset(hand_settings(stream))
    usable = [
        known
        for known in recorded
        if known.settings and known.verdict != "rolled_back" and not known.is_broken_off(failed)
    ]
    for known in reversed(usable):
        if known.settings == complete_settings(known.settings, stream, machine):
            return replace(known, held=held)
        if known.verdict != "trial":  # what is not proved is not taken over
            break
    proved = [known.settings for known in usable if known.verdict != "trial"]
    before = proved[-1] if proved else {}
    settings = complete_settings(before, stream, machine)
    return Profile(
        number=1 + max((known.number for known in recorded), default=0),
        settings=settings,
        verdict="default",
        reason=_why_new(before, settings),
        held=held,
    )


def _why_new(before: Settings, after: Settings) -> str:
    if not before:
        return "the first profile: our defaults, and what is held by hand"
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    changes = (f"{n} {before.get(n, 'not set')} to {after.get(n, 'not set')}" for n in names)
    return f"not the tuner's doing: {', '.join(changes)}"


def complete_settings(tuned: Settings, stream: Stream, machine_bytes: int) -> Settings:
    """All settings: what is tuned, as far as it still fits, over ours; by hand over both."""
    ours = {name: setting.value for name, setting in SETTINGS.items()}
    ours[MAX_MEMORY_MB] = str(memory_limit_mb(machine_bytes, stream.state_partitions))
    if (memory := tuned.get(MAX_MEMORY_MB)) and memory in SETTINGS[MAX_MEMORY_MB].allowed:
        ours[MAX_MEMORY_MB] = memory
    ours[MAX_MEMORY_MB] = str(min(int(ours[MAX_MEMORY_MB]), memory_ceiling_mb(machine_bytes)))
    held = dict(hand_settings(stream))
    most = RATIOS_TOGETHER - float((ours | held)[HIGH_PRIORITY])
    ours[WRITE_BUFFER_RATIO] = f"{min(float(ours[WRITE_BUFFER_RATIO]), most):g}"
    return ours | held


def memory_limit_mb(machine_bytes: int, partitions: int) -> int:
    """The limit for a stream with so many state partitions, in MiB; ValueError below 1."""
    if partitions < 1:
        raise ValueError(f"state partitions must be at least 1, not {partitions}")
    return max(FLOOR_MB, min(PER_PARTITION_MB * partitions, memory_ceiling_mb(machine_bytes)))


def memory_ceiling_mb(machine_bytes: int) -> int:
    """The most that a machine with so much memory can spare, in MiB; ValueError below 1 byte."""
    if machine_bytes < 1:
        raise ValueError(f"a machine must have memory, not {machine_bytes} bytes")
    return max(FLOOR_MB, machine_bytes // MIB // MACHINE_SHARE)


def machine_memory_bytes() -> int:
    """The memory of this machine, or of the container that this process is in."""
    physical = int(psutil.virtual_memory().total)
    try:
        limit = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return physical  # no container, or another system
    return min(physical, int(limit)) if limit.isdigit() else physical


def read_profiles(lake: Lake, stream: Stream) -> list[Profile]:
    """All profiles of the stream on record, in order."""
    rows = read_ops(lake, TABLE, {"stream": stream.name}).to_pylist()
    return [
        Profile(
            number=row["profile"],
            settings=_settings(row["settings"]),
            verdict=row["verdict"],
            reason=row["reason"] or "",
            evidence=_object(row["evidence"]),
            created_at=row["created_at"],
            judged_at=row["judged_at"],
        )
        for row in sorted(rows, key=lambda row: row["profile"])
    ]


def _settings(text: str | None) -> Settings:
    settings = _object(text)
    return settings if all(isinstance(value, str) for value in settings.values()) else {}


def _object(text: str | None) -> dict[str, Any]:
    try:
        parsed = json.loads(text or "")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def record_profile(
    lake: Lake, stream: Stream, profile: Profile, now: datetime | None = None
) -> Profile:
    """Append the profile to the table, once; as it is there, which may be under a higher number."""
    app_id = f"{stream.name}/{TABLE}"
    if profile.number not in {known.number for known in read_profiles(lake, stream)}:
        number = max(profile.number, 1 + newest_transaction(lake, TABLE, app_id))
        profile = replace(profile, number=number)
    row = {
        "stream": stream.name,
        "profile": profile.number,
        "created_at": now or datetime.now(UTC),
        "settings": json.dumps(dict(profile.settings), sort_keys=True),
        "reason": profile.reason,
        "evidence": json.dumps(dict(profile.evidence), sort_keys=True),
        "verdict": profile.verdict,
    }
    append_ops(lake, TABLE, [row], (app_id, profile.number))
    return profile


def record_verdict(
    lake: Lake, stream: Stream, number: int, verdict: str, why: str, now: datetime | None = None
) -> None:
    """What became of a trial."""
    row = {
        "stream": stream.name,
        "profile": number,
        "verdict": verdict,
        "judgement": why,
        "judged_at": now or datetime.now(UTC),
    }
    update_ops(lake, TABLE, ("stream", "profile"), [row])
