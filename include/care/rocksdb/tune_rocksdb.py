"""Size the memory of a stream's state stores by what its last runs have measured, one change at a time.

Too little memory for what is written shows: a run flushes and compacts, on the local disk, what it
has just written or replayed. The formula is `wanted_mb`. A change is a numbered profile on trial
(`ops/rocksdb_profiles`); the next run with data decides whether it stays. Works without a JVM, from
the record alone: the same record gives the same decision.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from include.care.rocksdb.settings import (
    BOUNDED,
    HIGH_PRIORITY,
    MAX_MEMORY_MB,
    RATIOS_TOGETHER,
    SETTINGS,
    WRITE_BUFFER_RATIO,
    hand_settings,
)
from include.lake.findings import Finding
from include.lake.generations import read_generations
from include.lake.ops import append_ops, not_ahead, read_ops, update_ops
from include.lake.paths import Lake
from include.settings import MIB, Stream
from include.text_table import bytes_text, counted, text_table

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
    settings: Settings  # by Spark's short names
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
    if not profile.is_recorded:
        record_profile(lake, stream, profile)
    return profile


def active_profile(lake: Lake, stream: Stream) -> Profile:
    """The profile that the next run of `stream` has; the defaults before anything is recorded.

    A trial ends with the first run that fails: whatever the cause, the next has the profile
    before.
    """
    where = {"subject": stream.name, "job": "run_stream", "outcome": "failed"}
    failed = read_ops(lake, "runs", where, ("started_at",))["started_at"].to_pylist()
    return choose_profile(read_profiles(lake, stream), failed, stream, machine_memory_bytes())


def choose_profile(
    recorded: Sequence[Profile],
    failed: Sequence[datetime],
    stream: Stream,
    machine_bytes: int,
) -> Profile:
    """`active_profile` of what is on record: the profiles in order, and when runs failed."""
    held = frozenset(hand_settings(stream))
    usable = [
        known
        for known in recorded
        if known.verdict != "rolled_back" and not known.is_broken_off(failed)
    ]
    for known in reversed(usable):
        if known.settings == complete_settings(known.settings, stream, machine_bytes):
            return replace(known, held=held)
        if known.verdict != "trial":  # what is not proved is not taken over
            break
    proved = [known.settings for known in usable if known.verdict != "trial"]
    before = proved[-1] if proved else {}
    settings = complete_settings(before, stream, machine_bytes)
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
    limit = memory_limit_mb(machine_bytes, stream.state_partitions)
    memory = min(int(tuned.get(MAX_MEMORY_MB, limit)), memory_ceiling_mb(machine_bytes))
    ours[MAX_MEMORY_MB] = str(memory)
    held = dict(hand_settings(stream))
    most = RATIOS_TOGETHER - float((ours | held)[HIGH_PRIORITY])
    ours[WRITE_BUFFER_RATIO] = f"{min(float(ours[WRITE_BUFFER_RATIO]), most):g}"
    return ours | held


def memory_limit_mb(machine_bytes: int, partitions: int) -> int:
    """The limit for a stream with so many state partitions, in MiB."""
    return max(FLOOR_MB, min(PER_PARTITION_MB * partitions, memory_ceiling_mb(machine_bytes)))


def memory_ceiling_mb(machine_bytes: int) -> int:
    """The most that a machine with so much memory can spare, in MiB."""
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
            settings=json.loads(row["settings"]),
            verdict=row["verdict"],
            reason=row["reason"] or "",
            evidence=json.loads(row["evidence"] or "{}"),
            created_at=row["created_at"],
            judged_at=row["judged_at"],
        )
        for row in sorted(rows, key=lambda row: row["profile"])
    ]


def record_profile(lake: Lake, stream: Stream, profile: Profile) -> None:
    """Append the profile to the table, once."""
    row = {
        "stream": stream.name,
        "profile": profile.number,
        "created_at": datetime.now(UTC),
        "settings": json.dumps(dict(profile.settings), sort_keys=True),
        "reason": profile.reason,
        "evidence": json.dumps(dict(profile.evidence), sort_keys=True),
        "verdict": profile.verdict,
    }
    append_ops(lake, TABLE, [row], (f"{stream.name}/{TABLE}", profile.number))


def record_verdict(lake: Lake, stream: Stream, number: int, verdict: str, why: str) -> None:
    """What became of a trial."""
    row = {
        "stream": stream.name,
        "profile": number,
        "verdict": verdict,
        "judgement": why,
        "judged_at": datetime.now(UTC),
    }
    update_ops(lake, TABLE, ("stream", "profile"), [row])


# By the newest batches with data under one profile, as many as these.
BATCHES = 3
# A batch that flushes and compacts less than this has memory enough.
LEAST_REWRITTEN = 1 * MIB
# A smaller change of the memory is not worth a trial.
LEAST_CHANGE = 1.25
# At most this part of what the stores hold stays when a run is above the limit.
LESS = 0.75
# A change stays if its figure is this part of what it was, or less.
MARGIN = 0.8
# After a change was taken back none is tried for so many runs.
PATIENCE_RUNS = 20
TITLES = {
    "proposed": "a change to try",
    "kept": "the trial to be kept",
    "rolled_back": "the trial to be rolled back",
    "waiting": "waiting",
    "nothing": "nothing to do",
}
# Of Spark's operator, for people and for the formula.
BYTES = {
    "written to the stores": "rocksdbTotalBytesWritten",
    "flushed": "rocksdbTotalBytesWrittenByFlush",
    "compacted": "rocksdbTotalBytesWrittenByCompaction",
    "files of the stores": "rocksdbSstFileSize",
}
TIMES = {
    "load of the stores": "rocksdbLoadLatencyMs",
    "- of it replay of change logs": "rocksdbReplayChangeLogLatencyMs",
    "get": "rocksdbGetLatency",
    "put": "rocksdbPutLatency",
    "flush": "rocksdbCommitFlushLatency",
    "making snapshots": "rocksdbCommitCheckpointLatency",
    "upload": "rocksdbCommitFileSyncLatencyMs",
    "compaction, beside the batch": "rocksdbTotalCompactionLatencyMs",
}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a batch has measured, or several on average; of the run's memory the most that it held."""

    written: float
    rewritten: float
    store_memory: float
    rss: float
    metrics: Mapping[str, float]

    @property
    def rewriting(self) -> float:
        """How often the stores write anew what was written to them."""
        return self.rewritten / max(self.written, 1)


class Batch(NamedTuple):
    """A batch of an ordinary run with data, and the profile that it ran with."""

    number: int
    profile: int | None
    figures: Figures


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that a decision stands on."""

    stream: Stream
    batches: Sequence[Batch]  # of the generation, in order
    runs: Sequence[Mapping[str, Any]]  # rows of `ops/runs`, of run_stream
    profiles: Sequence[Profile]
    machine_bytes: int

    @property
    def active(self) -> Profile:
        """The profile that the next run has, if nothing is decided."""
        failed = [run["started_at"] for run in self.runs if run["outcome"] == "failed"]
        return choose_profile(self.profiles, failed, self.stream, machine_bytes=self.machine_bytes)

    @property
    def trial(self) -> Profile | None:
        """The profile whose trial has no verdict yet."""
        return next((p for p in reversed(self.profiles) if p.verdict == "trial"), None)

    def measured(self, profile: int) -> Figures | None:
        """By the newest batches under that profile; None without any."""
        found = [batch.figures for batch in self.batches if batch.profile == profile]
        return _mean(found[-BATCHES:]) if found else None


@dataclass(frozen=True)
class Outcome:
    """The decision. `profile` is what runs next, `judged` the trial that it is about."""

    kind: Literal["proposed", "kept", "rolled_back", "waiting", "nothing"]
    text: str
    profile: Profile
    figures: Figures | None  # the newest under one profile, for people
    judged: int | None = None


def tune_rocksdb(lake: Lake, stream: Stream, dry_run: bool = False) -> Outcome:
    """Decide what is next for the stream's settings, and put it on record.

    A dry run only decides. SettingsError when the stream's entry holds an impossible setting.
    """
    outcome = decide(read_record(lake, stream, machine_memory_bytes()))
    if not dry_run and outcome.kind == "proposed":
        record_profile(lake, stream, outcome.profile)
    if not dry_run and outcome.judged is not None and outcome.kind != "waiting":
        record_verdict(lake, stream, outcome.judged, verdict=outcome.kind, why=outcome.text)
    return outcome


def read_record(lake: Lake, stream: Stream, machine_bytes: int) -> Record:
    """What is on record of the stream's ordinary runs; those of a compaction have other settings."""
    generation = read_generations(lake, stream.name).number
    rows = read_ops(lake, "batches", {"stream": stream.name, "generation": generation})
    runs = read_ops(lake, "runs", {"job": "run_stream", "subject": stream.name}).to_pylist()
    return Record(
        stream=stream,
        batches=batches_of(rows.to_pylist(), runs),
        runs=runs,
        profiles=read_profiles(lake, stream),
        machine_bytes=machine_bytes,
    )


def batches_of(rows: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> list[Batch]:
    """The measured batches with data in rows of `ops/batches`; the first of all makes the stores."""
    by_run = {run["run_id"]: run for run in runs}
    found = []
    for row in sorted(rows, key=lambda row: row["batch_id"]):
        if row["run_id"] in by_run and row["batch_id"] and row["rows_in"]:
            figures = _figures(row, by_run[row["run_id"]])
            found += [] if figures is None else [Batch(row["batch_id"], row["profile"], figures)]
    return found


def _figures(row: Mapping[str, Any], run: Mapping[str, Any]) -> Figures | None:
    """None when a killed run has left no metrics."""
    try:
        (metrics,) = json.loads(row["state_metrics"])
        named = {name: float(metrics[name]) for name in (*BYTES.values(), *TIMES.values())}
        store_memory = float(row["state_bytes"])
    except (KeyError, TypeError, ValueError):
        return None
    if not all(0 <= value < math.inf for value in (*named.values(), store_memory)):
        return None
    flushed, compacted = named[BYTES["flushed"]], named[BYTES["compacted"]]
    return Figures(
        written=named[BYTES["written to the stores"]],
        rewritten=flushed + compacted,
        store_memory=store_memory,
        rss=float((run["jvm_rss_bytes"] or 0) + (run["python_rss_bytes"] or 0)),
        metrics=named,
    )


def _mean(figures: Sequence[Figures]) -> Figures:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    return Figures(
        written=mean([each.written for each in figures]),
        rewritten=mean([each.rewritten for each in figures]),
        store_memory=mean([each.store_memory for each in figures]),
        rss=mean([each.rss for each in figures]),
        metrics={n: mean([each.metrics[n] for each in figures]) for n in figures[0].metrics},
    )


def wanted_mb(memory_mb: int, ceiling_mb: int, rss_limit: int | None, measured: Figures) -> int:
    """The memory that the stores of a process should have, in MiB:

        memory x (written + rewritten) / written

    as far as the machine, and the stream's limit on a run's memory, have room. Of a run above that
    limit the stores give back what is over it, and a quarter at least, if they hold so much.
    """
    room = math.inf if rss_limit is None else (rss_limit - measured.rss) / MIB
    if room < 0:
        held = measured.store_memory / MIB
        if held + room < FLOOR_MB:
            return memory_mb
        return min(memory_mb, max(FLOOR_MB, int(min(held + room, LESS * held))))
    if measured.rewritten < LEAST_REWRITTEN:
        return memory_mb
    most = min(ceiling_mb, memory_mb + room)
    return max(memory_mb, int(min(memory_mb * (1 + measured.rewriting), most)))


def decide(record: Record) -> Outcome:
    """Judge the trial if there is one, else propose a change if the formula asks for one."""
    if record.trial is not None:
        return _judge_trial(record, record.trial)
    active = record.active
    measured = record.measured(active.number) if active.is_recorded else None
    if measured is None:
        text = f"no run with data was measured under profile {active.number} yet"
        return Outcome("waiting" if record.runs else "nothing", text, active, figures=None)
    if (why := _why_not(record, active)) is not None:
        return Outcome("nothing", why, active, figures=measured)
    memory = int(active.settings[MAX_MEMORY_MB])
    limit = record.stream.limits.rss_bytes
    wanted = wanted_mb(memory, memory_ceiling_mb(record.machine_bytes), limit, measured=measured)
    if max(wanted, memory) < LEAST_CHANGE * min(wanted, memory):
        return Outcome("nothing", "no change is worth a trial", active, figures=measured)
    trial = _trial(record, active, wanted, measured=measured)
    return Outcome("proposed", trial.reason, trial, figures=measured)


def _why_not(record: Record, active: Profile) -> str | None:
    if MAX_MEMORY_MB in active.held or active.settings[BOUNDED] != "true":
        return "held by hand"
    back = [p.judged_at for p in record.profiles if p.verdict == "rolled_back" and p.judged_at]
    since = [run for run in record.runs if back and run["started_at"] >= max(back)]
    if back and len(since) < PATIENCE_RUNS:
        return f"the last change was taken back {counted(len(since), 'run')} ago: {PATIENCE_RUNS} are to pass"
    return None


def _trial(record: Record, active: Profile, wanted: int, measured: Figures) -> Profile:
    """The profile by which a change is tried, with the figure that decides on it."""
    before = active.settings[MAX_MEMORY_MB]
    is_more = wanted > int(before)
    figure = "rewriting" if is_more else "store_memory"
    what = (
        f"a batch flushes and compacts {bytes_text(measured.rewritten)}, and writes "
        f"{bytes_text(measured.written)}"
        if is_more
        else f"a run holds {bytes_text(measured.rss)}, {bytes_text(measured.store_memory)} of it in "
        "the state stores, which is above the stream's limit"
    )
    shown = {name: value for name, value in vars(measured).items() if name != "metrics"}
    return Profile(
        number=1 + max(known.number for known in record.profiles),
        settings={**active.settings, MAX_MEMORY_MB: str(wanted)},
        verdict="trial",
        reason=f"{MAX_MEMORY_MB} {before} to {wanted}: {what}",
        evidence={**shown, "figure": figure, "before": getattr(measured, figure)},
        held=active.held,
    )


def _judge_trial(record: Record, trial: Profile) -> Outcome:
    measured = record.measured(trial.number)
    verdict, why = _verdict(record, trial, measured)
    if verdict != "waiting":
        judged = [replace(p, verdict=verdict) if p is trial else p for p in record.profiles]
        record = replace(record, profiles=judged)
    text = f"{trial.reason.partition(':')[0]}: {why}"
    return Outcome(verdict, text, record.active, figures=measured, judged=trial.number)


def _verdict(
    record: Record, trial: Profile, measured: Figures | None
) -> tuple[Literal["waiting", "kept", "rolled_back"], str]:
    failed = [run["started_at"] for run in record.runs if run["outcome"] == "failed"]
    if trial.is_broken_off(failed):
        return "rolled_back", "a run failed during the trial, whatever the cause"
    if record.active.number != trial.number:
        return "rolled_back", "the stream's settings, or the machine, changed during the trial"
    figure, before = trial.evidence["figure"], trial.evidence["before"]
    if measured is None:
        return "waiting", "no run with data was measured under it yet"
    after = getattr(measured, figure)
    said = f"{figure} {before:,.2f} before and {after:,.2f} now, at most {MARGIN * before:,.2f} was to be reached"
    return ("kept" if after <= MARGIN * before else "rolled_back"), said


def trial_findings(outcome: Outcome) -> list[Finding]:
    """Of a trial that was rolled back: more or less memory is not what the stream needs."""
    if outcome.kind != "rolled_back":
        return []
    detail = f"RocksDB: {outcome.text}. The settings before it are back"
    return [Finding(finding="trial_rolled_back", severity="info", detail=detail)]


def format_outcome(outcome: Outcome) -> str:
    """The outcome as lines for people: decision, settings, figures of the newest batches."""
    return "\n".join(_lines(outcome))


def _lines(outcome: Outcome) -> Iterator[str]:
    profile = outcome.profile
    yield f"RocksDB settings: {TITLES[outcome.kind]}"
    yield f"  {outcome.text}"
    is_new = not profile.is_recorded and outcome.kind != "proposed"
    new = ", which the next run records" if is_new else ""
    yield f"the next run has profile {profile.number} ({profile.verdict}{new})"
    # What is tuned, and what is held; the rest is as `settings` says.
    shown = sorted({MAX_MEMORY_MB} | profile.held, key=list(SETTINGS).index)
    rows = [(n, profile.settings[n], "hand" if n in profile.held else "tuner") for n in shown]
    yield from text_table(("setting", "value", "by"), rows, left=(0, 1, 2))
    if (measured := outcome.figures) is not None:
        yield f"a batch with data, by the newest {BATCHES} of one profile"
        yield from text_table(("", ""), list(_told(measured)), left=(0,))[1:]


def _told(measured: Figures) -> Iterator[tuple[str, str]]:
    for title, metric in TIMES.items():
        yield title, f"{measured.metrics[metric]:,.0f} ms"
    for title, metric in BYTES.items():
        yield title, bytes_text(measured.metrics[metric])
    yield "memory of the stores", bytes_text(measured.store_memory)
    yield "memory of the run, JVM and Python", bytes_text(measured.rss)
