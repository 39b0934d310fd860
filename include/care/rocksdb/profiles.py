"""Profiles: under which settings a stream's state store runs, numbered in `ops/rocksdb_profiles`.

A profile is all of it: our fixed values, the two tuned ones, and what is held by hand. Its
number is in each row of `ops/batches`, so that like can be compared with like. Whoever
changes code, hand settings or machine gets a new number.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from include.care.rocksdb.hand_settings import hand_settings
from include.care.rocksdb.memory_limit import (
    machine_memory_bytes,
    memory_ceiling_mb,
    memory_limit_mb,
)
from include.care.rocksdb.settings import (
    HIGH_PRIORITY,
    MAX_MEMORY_MB,
    RATIOS_TOGETHER,
    SETTINGS,
    TUNED,
    WRITE_BUFFER_RATIO,
)
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake
from include.settings import Stream

TABLE = "rocksdb_profiles"
KEY = ("stream", "profile")

Settings = Mapping[str, str]
Verdict = Literal["default", "trial", "kept", "rolled_back"]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a run sets. `held` are the settings that the stream's entry holds by hand."""

    number: int
    settings: Settings  # by Spark's short names
    held: frozenset[str]
    verdict: Verdict
    reason: str
    is_recorded: bool = True

    def conf(self) -> dict[str, str]:
        """The settings as a Spark session takes them."""
        return {SETTINGS[name].full_name: value for name, value in self.settings.items()}


@dataclass(frozen=True, kw_only=True)
class RecordedProfile:
    """A row of the table, as far as decisions need it."""

    number: int
    settings: Settings  # empty when the row cannot be read
    verdict: str
    reason: str
    created_at: datetime
    evidence: Mapping[str, Any]


def profile_for_run(lake: Lake, stream: Stream) -> Profile:
    """The profile for a run that starts now, on record before its first batch.

    SettingsError when the stream's entry holds a setting that is unknown or out of range.
    """
    profile = active_profile(lake, stream)
    if not profile.is_recorded:
        record_profile(lake, stream, profile)
    return profile


def active_profile(lake: Lake, stream: Stream, machine_bytes: int | None = None) -> Profile:
    """The profile that the next run of `stream` has; the defaults before anything is recorded.

    A trial ends with the first run that fails: whatever the cause, the next has the profile
    before. `machine_bytes` is of this machine unless given.
    """
    failed = failed_runs(lake, stream)
    return choose_profile(read_profiles(lake, stream), failed, stream, machine_bytes)


def choose_profile(
    recorded: Sequence[RecordedProfile],
    failed: Sequence[datetime],
    stream: Stream,
    machine_bytes: int | None = None,
) -> Profile:
    """`active_profile` of what is on record: the profiles in order, and when runs failed."""
    machine = machine_memory_bytes() if machine_bytes is None else machine_bytes
    usable = [p for p in recorded if p.verdict != "rolled_back" and p.settings]
    if usable and usable[-1].verdict == "trial" and is_broken_off(usable[-1], failed):
        usable.pop()
    for known in reversed(usable):
        if known.settings == complete_settings(known.settings, stream, machine):
            return _recorded(known, stream)
        if known.verdict != "trial":  # what is not proved is not taken over
            break
    proved = [p.settings for p in usable if p.verdict != "trial"]
    settings = complete_settings(proved[-1] if proved else {}, stream, machine)
    return Profile(
        number=1 + max((p.number for p in recorded), default=0),
        settings=settings,
        held=frozenset(hand_settings(stream)),
        verdict="default",
        reason=_why_new(proved[-1] if proved else None, settings),
        is_recorded=False,
    )


def _recorded(known: RecordedProfile, stream: Stream) -> Profile:
    return Profile(
        number=known.number,
        settings=known.settings,
        held=frozenset(hand_settings(stream)),
        verdict=known.verdict,  # type: ignore[arg-type]  # only this module writes it
        reason=known.reason,
    )


def _why_new(before: Settings | None, settings: Settings) -> str:
    if before is None:
        return "the first profile: our defaults, and what is held by hand"
    return f"not the tuner's doing: {changes_text(before, settings)}"


def changes_text(before: Settings, after: Settings) -> str:
    """What differs, for people: `maxMemoryUsageMB 64 to 256`."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(
        f"{name} {before.get(name, 'not set')} to {after.get(name, 'not set')}" for name in names
    )


def complete_settings(tuned: Settings, stream: Stream, machine_bytes: int) -> Settings:
    """All settings: what is tuned, as far as it still fits, over ours; by hand over both."""
    ours = {name: setting.value for name, setting in SETTINGS.items()}
    ours[MAX_MEMORY_MB] = str(memory_limit_mb(machine_bytes, stream.state_partitions))
    for name in TUNED:
        if name in tuned and SETTINGS[name].allowed.allows(tuned[name]):
            ours[name] = tuned[name]
    ours[MAX_MEMORY_MB] = str(min(int(ours[MAX_MEMORY_MB]), memory_ceiling_mb(machine_bytes)))
    held = dict(hand_settings(stream))
    most = RATIOS_TOGETHER - float(held.get(HIGH_PRIORITY, ours[HIGH_PRIORITY]))
    ours[WRITE_BUFFER_RATIO] = f"{min(float(ours[WRITE_BUFFER_RATIO]), most):g}"
    return ours | held


def is_broken_off(trial: RecordedProfile, failed: Sequence[datetime]) -> bool:
    """Whether a run failed since the trial began."""
    return any(started_at >= trial.created_at for started_at in failed)


def failed_runs(lake: Lake, stream: Stream) -> list[datetime]:
    """When the stream's runs began that failed."""
    where = {"subject": stream.name, "job": "run_stream", "outcome": "failed"}
    return [run["started_at"] for run in read_ops(lake, "runs", where).to_pylist()]


def read_profiles(lake: Lake, stream: Stream) -> list[RecordedProfile]:
    """All profiles of the stream on record, in order."""
    rows = read_ops(lake, TABLE, {"stream": stream.name}).to_pylist()
    return [
        RecordedProfile(
            number=row["profile"],
            settings=_settings(row["settings"]),
            verdict=row["verdict"],
            reason=row["reason"] or "",
            created_at=row["created_at"],
            evidence=_object(row["evidence"]),
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
    lake: Lake,
    stream: Stream,
    profile: Profile,
    evidence: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> None:
    """Append the profile to the table, once."""
    row = {
        "stream": stream.name,
        "profile": profile.number,
        "created_at": now or datetime.now(UTC),
        "settings": json.dumps(dict(profile.settings), sort_keys=True),
        "reason": profile.reason,
        "evidence": json.dumps(evidence or {}, sort_keys=True),
        "verdict": profile.verdict,
    }
    append_ops(lake, TABLE, [row], (f"{stream.name}/{TABLE}", profile.number))


def record_verdict(
    lake: Lake,
    stream: Stream,
    number: int,
    verdict: Verdict,
    judgement: str,
    now: datetime | None = None,
) -> None:
    """What became of a trial."""
    row = {
        "stream": stream.name,
        "profile": number,
        "verdict": verdict,
        "judgement": judgement,
        "judged_at": now or datetime.now(UTC),
    }
    update_ops(lake, TABLE, KEY, [row])
