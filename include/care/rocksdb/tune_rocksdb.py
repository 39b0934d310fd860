"""Size the memory of a stream's state stores by what its last runs have measured, one change at a time.

Too little memory for what is written shows: a run flushes and compacts, on the local disk, what it
has just written or replayed. The formula is `wanted_mb`. A change is a numbered profile on trial
(`ops/rocksdb_profiles`); the next run with data decides whether it stays, and a run that fails ends it.
Works without a JVM, from the record alone.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple

import psutil

from include.care.rocksdb.settings import BOUNDED, MAX_MEMORY_MB, SETTINGS, hand_settings
from include.lake.findings import Finding
from include.lake.generations import read_generations
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake
from include.settings import MIB, Stream
from include.text_table import bytes_text, counted, text_table

TABLE = "rocksdb_profiles"
PER_PARTITION_MB = 64
FLOOR_MB = 64
# Two jobs may run at once, each with a heap and with Python workers beside it.
MACHINE_SHARE = 8
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
BATCHES = 3  # with data, the newest under one profile: by their mean it is measured
LEAST_REWRITTEN = 1 * MIB  # a batch that flushes and compacts less has memory enough
LEAST_CHANGE = 1.25  # a smaller change of the memory is not worth a trial
LESS = 0.75  # of what the stores hold, at most so much stays when a run is above its limit
MARGIN = 0.8  # a change stays if its figure is this part of what it was, or less
PATIENCE_RUNS = 20  # that pass after a change was rolled back
WRITTEN, FLUSHED, COMPACTED = (
    "rocksdbTotalBytesWritten",
    "rocksdbTotalBytesWrittenByFlush",
    "rocksdbTotalBytesWrittenByCompaction",
)
Settings = Mapping[str, str]  # by Spark's short names
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The settings of a run, and what became of them: default, trial, kept or rolled_back."""

    number: int
    settings: Settings
    verdict: str = "default"
    reason: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = field(default=None, compare=False)  # when put on record
    judged_at: datetime | None = field(default=None, compare=False)

    @property
    def memory_mb(self) -> int:
        return int(self.settings[MAX_MEMORY_MB])

    def conf(self) -> dict[str, str]:
        """The settings as a Spark session takes them."""
        return {SETTINGS[name].full_name: value for name, value in self.settings.items()}


def profile_for_run(lake: Lake, stream: Stream) -> Profile:
    """The profile for a run that starts now, on record before its first batch.

    SettingsError when the stream's entry holds a setting that is unknown or out of range.
    """
    profile = active_profile(lake, stream)
    if profile.created_at is None:
        record_profile(lake, stream, profile)
    return profile


def active_profile(lake: Lake, stream: Stream) -> Profile:
    """The profile that the next run of `stream` has; the defaults before anything is recorded."""
    profiles, runs = read_profiles(lake, stream), []
    if any(profile.verdict == "trial" for profile in profiles):
        runs = _runs(lake, stream)
    return choose_profile(profiles, runs, stream, machine_memory_bytes())


def choose_profile(
    recorded: Sequence[Profile], runs: Sequence[Row], stream: Stream, machine_bytes: int
) -> Profile:
    """`active_profile` of what is on record: the profiles in order, and the runs."""
    usable = [p for p in recorded if p.verdict != "rolled_back" and not has_failed(p, runs)]
    proved = [profile for profile in usable if profile.verdict != "trial"]
    for known in (*usable[-1:], *proved[-1:]):
        if known.settings == complete_settings(known.settings, stream, machine_bytes):
            return known
    before = proved[-1].settings if proved else {}
    settings = complete_settings(before, stream, machine_bytes)
    changes = (f"{n} {before.get(n)} to {v}" for n, v in settings.items() if before.get(n) != v)
    return Profile(
        number=1 + max((known.number for known in recorded), default=0),
        settings=settings,
        reason=f"not the tuner's doing: {', '.join(changes)}" if before else "the first profile",
    )


def has_failed(profile: Profile, runs: Sequence[Row]) -> bool:
    """Whether it is a trial, and a run has failed since it began, whatever the cause."""
    began = profile.created_at
    if profile.verdict != "trial" or began is None:
        return False
    return any(run["outcome"] == "failed" and run["started_at"] >= began for run in runs)


def complete_settings(tuned: Settings, stream: Stream, machine_bytes: int) -> Settings:
    """All settings: the tuned memory, as far as the machine has it, over ours; by hand over both."""
    limit = memory_limit_mb(machine_bytes, stream.state_partitions)
    memory = min(int(tuned.get(MAX_MEMORY_MB, limit)), memory_ceiling_mb(machine_bytes))
    ours = {name: setting.value for name, setting in SETTINGS.items()}
    return ours | {MAX_MEMORY_MB: str(memory)} | dict(hand_settings(stream))


def memory_limit_mb(machine_bytes: int, partitions: int) -> int:
    """The first limit for a stream with so many state partitions, in MiB."""
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
    rows = read_ops(lake, TABLE, {"stream": stream.name}).sort_by("profile").to_pylist()
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
        for row in rows
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


def _runs(lake: Lake, stream: Stream) -> list[Row]:
    where = {"subject": stream.name, "job": "run_stream"}
    return list(read_ops(lake, "runs", where).to_pylist())


class Figures(NamedTuple):
    """What a batch has measured, or several on average."""

    written: float
    rewritten: float  # flushed and compacted
    store_memory: float
    rss: float  # of the run, JVM and Python

    @property
    def rewriting(self) -> float:
        """How often the stores write anew what was written to them."""
        return self.rewritten / max(self.written, 1)


@dataclass(frozen=True, kw_only=True)
class History:
    """All that a decision stands on."""

    stream: Stream
    profiles: Sequence[Profile]
    runs: Sequence[Row]  # of `ops/runs`, of run_stream: those of a compaction have other settings
    batches: Sequence[Row]  # of `ops/batches`, of the generation
    machine_bytes: int

    @property
    def active(self) -> Profile:
        return choose_profile(self.profiles, self.runs, self.stream, self.machine_bytes)

    def measured(self, profile: int) -> Figures | None:
        """The mean of the newest batches with data under that profile; None without any."""
        runs = {run["run_id"]: run for run in self.runs}
        found = [
            figures
            for row in sorted(self.batches, key=lambda row: row["batch_id"])
            # The first batch of all makes the stores.
            if row["profile"] == profile and row["batch_id"] and row["rows_in"]
            if row["run_id"] in runs and (figures := _figures(row, runs[row["run_id"]]))
        ]
        return Figures(*map(mean, zip(*found[-BATCHES:], strict=True))) if found else None


def _figures(batch: Row, run: Row) -> Figures | None:
    """None when a killed run has left no metrics."""
    try:
        (metrics,) = json.loads(batch["state_metrics"])
        written, flushed, compacted = (
            float(metrics[name]) for name in (WRITTEN, FLUSHED, COMPACTED)
        )
    except (KeyError, TypeError, ValueError):
        return None
    rss = (run["jvm_rss_bytes"] or 0) + (run["python_rss_bytes"] or 0)
    return Figures(written, flushed + compacted, batch["state_bytes"] or 0, rss)


@dataclass(frozen=True)
class Outcome:
    """A decision. `profile` is what runs next, `judged` the trial that it is about."""

    kind: Literal["proposed", "kept", "rolled_back", "waiting", "nothing"]
    text: str
    profile: Profile
    figures: Figures | None = None
    judged: int | None = None


def tune_rocksdb(lake: Lake, stream: Stream, dry_run: bool = False) -> Outcome:
    """Decide what is next for the stream's settings, and put it on record; a dry run only decides.

    SettingsError when the stream's entry holds an impossible setting.
    """
    generation = read_generations(lake, stream.name).number
    where = {"stream": stream.name, "generation": generation}
    history = History(
        stream=stream,
        profiles=read_profiles(lake, stream),
        runs=_runs(lake, stream),
        batches=read_ops(lake, "batches", where).to_pylist(),
        machine_bytes=machine_memory_bytes(),
    )
    outcome = decide(history)
    if not dry_run and outcome.kind == "proposed":
        record_profile(lake, stream, outcome.profile)
    if not dry_run and outcome.judged is not None:
        row = {
            "stream": stream.name,
            "profile": outcome.judged,
            "verdict": outcome.kind,
            "judgement": outcome.text,
            "judged_at": datetime.now(UTC),
        }
        update_ops(lake, TABLE, ("stream", "profile"), [row])
    return outcome


def decide(history: History) -> Outcome:
    """Judge the trial if there is one, else propose a change if the formula asks for one."""
    trial = next((p for p in history.profiles if p.verdict == "trial"), None)
    return _propose(history) if trial is None else _judge(history, trial)


def _propose(history: History) -> Outcome:
    active, stream = history.active, history.stream
    measured = history.measured(active.number)
    if measured is None:
        text = f"no run with data was measured under profile {active.number} yet"
        return Outcome("waiting" if history.runs else "nothing", text, active)
    if MAX_MEMORY_MB in stream.rocksdb or active.settings[BOUNDED] != "true":
        return Outcome("nothing", "held by hand", active, measured)
    if (since := _runs_since_rolled_back(history)) < PATIENCE_RUNS:
        text = f"the last change was rolled back {counted(int(since), 'run')} ago: {PATIENCE_RUNS} are to pass"
        return Outcome("nothing", text, active, measured)
    ceiling, memory = memory_ceiling_mb(history.machine_bytes), active.memory_mb
    wanted = wanted_mb(memory, ceiling, stream.limits.rss_bytes, measured)
    if max(wanted, memory) < LEAST_CHANGE * min(wanted, memory):
        return Outcome("nothing", "no change is worth a trial", active, measured)
    figure = "rewriting" if wanted > memory else "store_memory"
    trial = Profile(
        number=1 + max(known.number for known in history.profiles),
        settings={**active.settings, MAX_MEMORY_MB: str(wanted)},
        verdict="trial",
        reason=f"{MAX_MEMORY_MB} {memory} to {wanted}: {_why(measured, figure)}",
        evidence={**measured._asdict(), "figure": figure, "before": getattr(measured, figure)},
    )
    return Outcome("proposed", trial.reason, trial, measured)


def _why(measured: Figures, figure: str) -> str:
    if figure == "rewriting":
        rewritten, written = bytes_text(measured.rewritten), bytes_text(measured.written)
        return f"a batch flushes and compacts {rewritten}, and writes {written}"
    rss, stores = bytes_text(measured.rss), bytes_text(measured.store_memory)
    return f"a run holds {rss}, above the stream's limit, {stores} of it in the state stores"


def _runs_since_rolled_back(history: History) -> float:
    back = [p.judged_at for p in history.profiles if p.verdict == "rolled_back" and p.judged_at]
    return sum(run["started_at"] >= max(back) for run in history.runs) if back else math.inf


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


def _judge(history: History, trial: Profile) -> Outcome:
    measured = history.measured(trial.number)
    verdict, why = _verdict(history, trial, measured)
    text = f"{trial.reason.partition(':')[0]}: {why}"
    if verdict == "waiting":
        return Outcome(verdict, text, history.active, measured)
    judged = [replace(p, verdict=verdict) if p is trial else p for p in history.profiles]
    next_active = replace(history, profiles=judged).active
    return Outcome(verdict, text, next_active, measured, judged=trial.number)


def _verdict(
    history: History, trial: Profile, measured: Figures | None
) -> tuple[Literal["waiting", "kept", "rolled_back"], str]:
    if has_failed(trial, history.runs):
        return "rolled_back", "a run failed during the trial, whatever the cause"
    if history.active.number != trial.number:
        return "rolled_back", "the stream's settings, or the machine, changed during the trial"
    if measured is None:
        return "waiting", "no run with data was measured under it yet"
    figure, before = trial.evidence["figure"], trial.evidence["before"]
    after, most = getattr(measured, figure), MARGIN * before
    said = (
        f"{figure} {before:,.2f} before and {after:,.2f} now, at most {most:,.2f} was to be reached"
    )
    return ("kept" if after <= most else "rolled_back"), said


def trial_findings(outcome: Outcome) -> list[Finding]:
    """Of a trial that was rolled back: more or less memory is not what the stream needs."""
    if outcome.kind != "rolled_back":
        return []
    detail = f"RocksDB: {outcome.text}. The settings before it are back"
    return [Finding(finding="trial_rolled_back", severity="info", detail=detail)]


def format_outcome(outcome: Outcome) -> str:
    """The outcome as lines for people: decision, memory, figures of the newest batches."""
    return "\n".join(_lines(outcome))


def _lines(outcome: Outcome) -> Iterator[str]:
    profile, measured = outcome.profile, outcome.figures
    yield f"RocksDB settings: {outcome.kind.replace('_', ' ')}"
    yield f"  {outcome.text}"
    verdict = f"profile {profile.number} ({profile.verdict})"
    yield f"the next run has {verdict}: {MAX_MEMORY_MB} {profile.settings[MAX_MEMORY_MB]}"
    if measured is not None:
        yield f"a batch with data, by the newest {BATCHES} of one profile"
        rows = [(name, bytes_text(value)) for name, value in measured._asdict().items()]
        yield from text_table(("", ""), rows, left=(0,))[1:]
