"""Tune the RocksDB settings of a stream: judge the trial that runs, or begin one.

Works from what runs have recorded, without a JVM, and from nothing else: the same record gives
the same decision. At most one setting changes at a time. A change runs as a trial, is judged
against like batches before it, and is kept or rolled back; `ops/rocksdb_profiles` has it all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Literal

from include.care.rocksdb.history import Batch, History, noise, read_history
from include.care.rocksdb.profile import (
    Profile,
    choose_profile,
    machine_memory_bytes,
    memory_ceiling_mb,
    read_profiles,
    record_profile,
    record_verdict,
)
from include.care.rocksdb.settings import SETTINGS, TUNED
from include.care.rocksdb.trial import Judgement, Proposal, Situation, judge, propose
from include.lake.findings import Finding
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.settings import Stream
from include.text_table import bytes_text, counted, text_table

# The newest batches of a profile, that rules and trials look at: some weeks of state at most.
WINDOW = 40
# By these of them a rule sees how things are: about the runs between two compactions.
NEWEST = 10
# With fewer, nothing is known of how things are.
MIN_BATCHES = 3
# A change that was rolled back is not proposed again for so many runs.
PATIENCE_RUNS = 20

TITLES = {
    "proposed": "a change to try",
    "kept": "the trial to be kept",
    "rolled_back": "the trial to be rolled back",
    "waiting": "waiting",
    "nothing": "nothing to do",
}
TIMES = {
    "batch_ms": "the whole batch",
    "load_ms": "load of the stores",
    "replay_ms": "- of it replay of change logs",
    "get_ms": "get",
    "put_ms": "put",
    "flush_ms": "flush",
    "snapshot_ms": "making snapshots",
    "upload_ms": "upload",
    "compaction_ms": "compaction, beside the batch",
}
SIZES = {
    "bytes_written": "written to the stores",
    "bytes_rewritten": "flushed and compacted",
    "sst_bytes": "files of the stores",
    "store_memory": "memory of the stores",
    "rss_bytes": "memory of the run, JVM and Python",
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that a decision stands on."""

    stream: Stream
    history: History
    profiles: Sequence[Profile]
    machine_bytes: int

    @property
    def active(self) -> Profile:
        """The profile that the next run has, if nothing is decided."""
        failed = self.history.failed
        return choose_profile(self.profiles, failed, self.stream, self.machine_bytes)

    @property
    def trial(self) -> Profile | None:
        """The profile whose trial has no verdict yet."""
        return next((p for p in reversed(self.profiles) if p.verdict == "trial"), None)


@dataclass(frozen=True)
class Outcome:
    """What was decided. `profile` is what runs next, `judged` the trial that it is about."""

    kind: Literal["proposed", "kept", "rolled_back", "waiting", "nothing"]
    text: str
    profile: Profile
    batches: Sequence[Batch]  # the newest under one profile, for people
    judged: int | None = None


def tune_rocksdb(
    lake: Lake,
    stream: Stream,
    dry_run: bool = False,
    machine_bytes: int | None = None,
    now: datetime | None = None,
) -> Outcome:
    """Decide what is next for the stream's settings, and put it on record.

    A dry run only decides. SettingsError when the stream's entry holds an impossible setting.
    `machine_bytes` and `now` are of this machine unless given.
    """
    record = Record(
        stream=stream,
        history=read_history(lake, stream, read_generations(lake, stream.name).number),
        profiles=read_profiles(lake, stream),
        machine_bytes=machine_memory_bytes() if machine_bytes is None else machine_bytes,
    )
    outcome = decide(record)
    if not dry_run and outcome.kind == "proposed":
        outcome = replace(outcome, profile=record_profile(lake, stream, outcome.profile, now))
    if not dry_run and outcome.kind in ("kept", "rolled_back") and outcome.judged is not None:
        record_verdict(lake, stream, outcome.judged, outcome.kind, outcome.text, now)
    return outcome


def decide(record: Record) -> Outcome:
    """Judge the trial if there is one, else propose a change if a rule asks for one."""
    if record.trial is not None:
        return _judge_trial(record, record.trial)
    active, history = record.active, record.history
    batches = history.under(active.number)[-WINDOW:]
    if not active.is_recorded or len(batches) < MIN_BATCHES:
        has_run = history.batches or history.unmeasured
        text = _too_early(active, history, len(batches))
        return Outcome("waiting" if has_run else "nothing", text, active, batches)
    refused = _refused(record)
    proposal = propose(_situation(record, active, batches), refused)
    if proposal is None:
        return Outcome("nothing", _why_nothing(active, refused), active, batches)
    if noise(batches, proposal.figure) is None:
        text = f"{proposal.reason}; a change waits until enough batches are like each other"
        return Outcome("waiting", text, active, batches)
    trial = _trial(record, active, proposal)
    return Outcome("proposed", trial.reason, trial, batches)


def _situation(record: Record, active: Profile, batches: Sequence[Batch]) -> Situation:
    return Situation(
        profile=active,
        batches=batches[-NEWEST:],
        memory_ceiling_mb=memory_ceiling_mb(record.machine_bytes),
        rss_limit_bytes=record.stream.limits.rss_bytes,
    )


def _trial(record: Record, active: Profile, proposal: Proposal) -> Profile:
    """The profile by which a change is tried."""
    evidence = {
        **proposal.evidence,
        "setting": proposal.setting,
        "is_increase": proposal.is_increase,
        "figure": proposal.figure,
        "before": active.number,
        "generation": record.history.generation,
        "batch_id": record.history.batches[-1].batch_id,
    }
    change = f"{proposal.setting} {proposal.before} to {proposal.value}"
    return Profile(
        number=1 + max(known.number for known in record.profiles),
        settings={**active.settings, proposal.setting: proposal.value},
        verdict="trial",
        reason=f"{change}: {proposal.reason}",
        evidence=evidence,
        held=active.held,
    )


def _judge_trial(record: Record, trial: Profile) -> Outcome:
    batches = record.history.under(trial.number)
    verdict, why = _judgement(record, trial, batches)
    if verdict != "waiting":
        judged = [replace(p, verdict=verdict) if p is trial else p for p in record.profiles]
        record = replace(record, profiles=judged)
    text = f"{trial.reason.partition(':')[0]}: {why}"
    return Outcome(verdict, text, record.active, batches[-WINDOW:], trial.number)


def _judgement(record: Record, trial: Profile, batches: Sequence[Batch]) -> Judgement:
    if trial.is_broken_off(record.history.failed):
        return Judgement("rolled_back", "a run failed during the trial, whatever the cause")
    if record.active.number != trial.number:
        text = "the stream's settings, or the machine, changed during the trial"
        return Judgement("rolled_back", text)
    figure, before = trial.evidence.get("figure"), trial.evidence.get("before")
    known = record.history.under(before)[-WINDOW:] if isinstance(before, int) else ()
    if not known or not isinstance(figure, str) or figure not in known[0].figures:
        return Judgement("rolled_back", "what it should be compared with is not on record")
    return judge(batches, known, figure, len({batch.run_id for batch in batches}))


def _refused(record: Record) -> frozenset[tuple[str, bool]]:
    """Settings, with whether they went up, whose trial was rolled back not long ago."""
    return frozenset(
        (str(known.evidence["setting"]), bool(known.evidence["is_increase"]))
        for known in record.profiles
        if known.verdict == "rolled_back"
        and {"setting", "is_increase"} <= known.evidence.keys()
        and _runs_since(record.history, known) < PATIENCE_RUNS
    )


def _runs_since(history: History, trial: Profile) -> int:
    """How many runs there were since a trial ended, or since it was proposed if it never ran."""
    ran = [batch.batch_id for batch in history.under(trial.number)]
    proposed_after = trial.evidence.get("batch_id")
    if not ran and trial.evidence.get("generation") == history.generation:
        ran = [proposed_after] if isinstance(proposed_after, int) else []
    return history.runs_after(max(ran, default=-1))


def _too_early(active: Profile, history: History, batches: int) -> str:
    if not active.is_recorded:
        return "no run has had the present settings yet"
    if not history.batches and history.unmeasured:
        return f"no batch has metrics that can be read, {history.unmeasured} have not"
    return f"{batches} of {MIN_BATCHES} measured batches with data under profile {active.number}"


def _why_nothing(active: Profile, refused: frozenset[tuple[str, bool]]) -> str:
    lately = sorted({setting for setting, _ in refused} - active.held)
    held = sorted(set(TUNED) & active.held)
    text = "no change is worth a trial"
    if lately:
        text += f"; not tried again for {PATIENCE_RUNS} runs: {', '.join(lately)}"
    if held:
        text += f"; held by hand: {', '.join(held)}"
    return text


def trial_findings(outcome: Outcome) -> list[Finding]:
    """Of a trial that was rolled back: a setting that was tried is not what the stream needs."""
    if outcome.kind != "rolled_back":
        return []
    return [
        Finding(
            finding="trial_rolled_back",
            severity="warning",
            detail=f"RocksDB: {outcome.text}. The settings before it are back",
            action="nothing; to keep the tuner from it, hold the setting in the entry's `rocksdb`",
        )
    ]


def format_outcome(outcome: Outcome) -> str:
    """The outcome as lines for people: decision, settings, figures of the newest batches."""
    return "\n".join(_lines(outcome))


def _lines(outcome: Outcome) -> Iterator[str]:
    profile, batches = outcome.profile, outcome.batches
    yield f"RocksDB settings: {TITLES[outcome.kind]}"
    yield f"  {outcome.text}"
    is_new = not profile.is_recorded and outcome.kind != "proposed"
    new = ", which the next run records" if is_new else ""
    yield f"the next run has profile {profile.number} ({profile.verdict}{new})"
    # What is tuned, and what is held; the rest is as `settings` says.
    shown = sorted(set(TUNED) | profile.held, key=list(SETTINGS).index)
    rows = [(n, profile.settings[n], "hand" if n in profile.held else "tuner") for n in shown]
    yield from text_table(("setting", "value", "by"), rows, left=(0, 1, 2))
    if batches:
        yield f"medians of {counted(len(batches), 'batch')} with data, the newest of one profile"
        yield from text_table(("", ""), list(_figures(batches)), left=(0,))[1:]


def _figures(batches: Sequence[Batch]) -> Iterator[tuple[str, str]]:
    def typical(figure: str) -> float:
        return median(batch.figures[figure] for batch in batches)

    for figure, title in TIMES.items():
        yield title, f"{typical(figure):,.0f} ms"
    yield "change logs replayed, all partitions", f"{typical('logs_replayed'):,.0f}"
    for figure, title in SIZES.items():
        yield title, bytes_text(typical(figure))
