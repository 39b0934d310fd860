"""What the tuner does next, decided from what is on record, and from nothing else.

At most one setting changes at a time. A change runs as a trial, is judged against like
batches before it, and is kept or rolled back. The same record gives the same decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from include.care.rocksdb.history import Batch, History
from include.care.rocksdb.memory_limit import memory_ceiling_mb
from include.care.rocksdb.profiles import (
    Profile,
    RecordedProfile,
    choose_profile,
    is_broken_off,
)
from include.care.rocksdb.rules import Proposal, Situation, propose
from include.care.rocksdb.settings import TUNED
from include.care.rocksdb.trials import Judgement, can_be_judged, judge
from include.settings import Stream

# The newest batches of a profile, that rules and trials look at: some weeks of state at most.
WINDOW = 40
# By these of them a rule sees how things are: about the runs between two compactions.
NEWEST = 10
# With fewer, nothing is known of how things are.
MIN_BATCHES = 3
# A change that was rolled back is not proposed again for so many runs.
PATIENCE_RUNS = 20

Kind = Literal["proposed", "kept", "rolled_back", "waiting", "nothing"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that a decision stands on."""

    stream: Stream
    history: History
    profiles: Sequence[RecordedProfile]
    failed: Sequence[datetime]  # when runs began that failed
    machine_bytes: int

    @property
    def active(self) -> Profile:
        """The profile that the next run has, if nothing is decided."""
        return choose_profile(self.profiles, self.failed, self.stream, self.machine_bytes)

    @property
    def trial(self) -> RecordedProfile | None:
        """The profile whose trial has no verdict yet."""
        return next((p for p in reversed(self.profiles) if p.verdict == "trial"), None)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was decided. `judged` is the trial that it is about, `profile` what runs next."""

    kind: Kind
    text: str
    profile: Profile
    judged: int | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    batches: Sequence[Batch] = ()  # the newest under the active profile, for people


def decide(record: Record) -> Outcome:
    """Judge the trial if there is one, else propose a change if a rule asks for one."""
    if record.trial is not None:
        return _judge_trial(record, record.trial)
    active = record.active
    batches = record.history.under(active.number)[-WINDOW:]
    if not active.is_recorded or len(batches) < MIN_BATCHES:
        return _too_early(record, active, batches)
    situation = Situation(
        profile=active,
        batches=batches[-NEWEST:],
        memory_ceiling_mb=memory_ceiling_mb(record.machine_bytes),
        rss_limit_bytes=record.stream.limits.rss_bytes,
    )
    proposal = propose(situation, _refused(record))
    if proposal is None:
        return _nothing(record, active, batches)
    if not can_be_judged(batches, proposal.figure):
        text = f"{proposal.reason}; a change waits until enough batches are like each other"
        return Outcome(kind="waiting", text=text, profile=active, batches=batches)
    return _propose(record, active, proposal, batches)


def _propose(
    record: Record, active: Profile, proposal: Proposal, batches: Sequence[Batch]
) -> Outcome:
    change = f"{proposal.setting} {proposal.before} to {proposal.value}"
    trial = Profile(
        number=1 + max(known.number for known in record.profiles),
        settings={**active.settings, proposal.setting: proposal.value},
        held=active.held,
        verdict="trial",
        reason=f"{change}: {proposal.reason}",
    )
    evidence = {
        **proposal.evidence,
        "setting": proposal.setting,
        "is_increase": proposal.is_increase,
        "figure": proposal.figure,
        "before": active.number,
        "generation": record.history.generation,
        "batch_id": record.history.batches[-1].batch_id,
    }
    return Outcome(
        kind="proposed", text=trial.reason, profile=trial, evidence=evidence, batches=batches
    )


def _judge_trial(record: Record, trial: RecordedProfile) -> Outcome:
    batches = record.history.under(trial.number)
    judgement = _judgement(record, trial, batches)
    verdict = "trial" if judgement.verdict == "waiting" else judgement.verdict
    judged = replace(trial, verdict=verdict)
    after = replace(record, profiles=[judged if p is trial else p for p in record.profiles])
    return Outcome(
        kind=judgement.verdict,
        text=f"{trial.reason.partition(':')[0]}: {judgement.text}",
        profile=after.active,
        judged=trial.number,
        batches=batches[-WINDOW:],
    )


def _judgement(record: Record, trial: RecordedProfile, batches: Sequence[Batch]) -> Judgement:
    if is_broken_off(trial, record.failed):
        text = "a run failed during the trial, whatever the cause"
        return Judgement(verdict="rolled_back", text=text)
    if record.active.number != trial.number:
        text = "the stream's settings, or the machine, changed during the trial"
        return Judgement(verdict="rolled_back", text=text)
    figure, before = trial.evidence.get("figure"), trial.evidence.get("before")
    known = record.history.under(before)[-WINDOW:] if isinstance(before, int) else ()
    if not known or not isinstance(figure, str) or figure not in known[0].figures:
        text = "what it should be compared with is not on record"
        return Judgement(verdict="rolled_back", text=text)
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


def _runs_since(history: History, trial: RecordedProfile) -> int:
    """How many runs there were since a trial ended, or since it was proposed if it never ran."""
    ran = [batch.batch_id for batch in history.under(trial.number)]
    proposed_after = trial.evidence.get("batch_id")
    if not ran and trial.evidence.get("generation") == history.generation:
        ran = [proposed_after] if isinstance(proposed_after, int) else []
    return history.runs_after(max(ran, default=-1))


def _too_early(record: Record, active: Profile, batches: Sequence[Batch]) -> Outcome:
    history = record.history
    have = f"{len(batches)} of {MIN_BATCHES} measured batches with data"
    if not active.is_recorded:
        text = "no run has had the present settings yet"
    elif not history.batches and history.unmeasured:
        text = f"no batch has metrics that can be read, {history.unmeasured} have not"
    else:
        text = f"{have} under profile {active.number}"
    kind: Kind = "waiting" if history.batches or history.unmeasured else "nothing"
    return Outcome(kind=kind, text=text, profile=active, batches=batches)


def _nothing(record: Record, active: Profile, batches: Sequence[Batch]) -> Outcome:
    refused = sorted({setting for setting, _ in _refused(record)} - active.held)
    held = sorted(set(TUNED) & active.held)
    text = "no change is worth a trial"
    if refused:
        text += f"; not tried again for {PATIENCE_RUNS} runs: {', '.join(refused)}"
    if held:
        text += f"; held by hand: {', '.join(held)}"
    return Outcome(kind="nothing", text=text, profile=active, batches=batches)
