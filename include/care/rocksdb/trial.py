"""Trials: which setting is changed, to what, and whether the change is kept.

Each rule proposes one step of one setting, within its floor and ceiling. Their order is the
order of their price: first what protects the machine, then what costs nothing, then memory.
A trial is judged by like batches under it against like batches before it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

from include.care.rocksdb.history import Batch, as_percent, changes, noise
from include.care.rocksdb.profile import FLOOR_MB, Profile
from include.care.rocksdb.settings import (
    BOUNDED,
    HIGH_PRIORITY,
    MAX_MEMORY_MB,
    RATIOS_TOGETHER,
    WRITE_BUFFER_RATIO,
    WRITE_BUFFER_RATIO_CEILING,
)
from include.settings import MIB
from include.text_table import counted

# Each doubling saves about as many bytes of rewriting; two are well above noise.
MEMORY_STEP = 4
# A batch that rewrites less than both has memory enough.
REWRITTEN_BYTES, REWRITTEN_SHARE = 1 * MIB, 0.25
# Of the process's memory: with less, RocksDB is not what makes it large.
STORE_SHARE = 0.1
# By so many batches. Simulated, with batches that differ by 10 or 30 % under one profile: of
# 4,000 trials without any effect 0 and 1 were kept; of those that save half at 10 %, 97 %.
MIN_BATCHES = 7
# A trial that never finds its like is given up.
MAX_RUNS = 30
# Kept only when its figure got smaller by a fifth at least, and by so many times the noise;
# and in no batch by less than LEAST of that.
MARGIN, NOISES, LEAST = -math.log(0.8), 3, 0.5
# Rolled back when the store's time got longer by half at least, and by so many times its noise.
SLOWER = math.log(1.5)


class Proposal(NamedTuple):
    """A change of one setting. It is kept if `figure` gets smaller by it."""

    setting: str
    before: str
    value: str
    figure: str
    reason: str
    evidence: Mapping[str, float]

    @property
    def is_increase(self) -> bool:
        return float(self.value) > float(self.before)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What the rules look at: the newest batches under the active profile, and the bounds."""

    profile: Profile
    batches: Sequence[Batch]
    memory_ceiling_mb: int
    rss_limit_bytes: int | None

    def typical(self, figure: str) -> float:
        return median(batch.figures[figure] for batch in self.batches)

    @property
    def memory_mb(self) -> int:
        return int(self.profile.settings[MAX_MEMORY_MB])

    @property
    def rewrites(self) -> bool:
        """Whether batches flush and compact much of what they write, or of what they replay."""
        least = max(REWRITTEN_BYTES, REWRITTEN_SHARE * self.typical("bytes_written"))
        return self.typical("bytes_rewritten") >= least


def less_memory(now: Situation) -> Proposal | None:
    """A quarter of the memory when the process is above the stream's limit because of it."""
    rss, store = now.typical("rss_bytes"), now.typical("store_memory")
    limit = now.rss_limit_bytes
    value = max(now.memory_mb // MEMORY_STEP, FLOOR_MB)
    # With a limit that the store does not reach, a lower one would change nothing.
    in_the_way = store >= max(STORE_SHARE * rss, value * MIB)
    if limit is None or rss <= limit or not in_the_way or value >= now.memory_mb:
        return None
    reason = (
        f"a run holds {_mib(rss)}, above the stream's limit of {_mib(limit)}, "
        f"{_mib(store)} of it in the state stores"
    )
    evidence = {"rss_bytes": rss, "rss_limit_bytes": limit, "store_memory": store}
    before = str(now.memory_mb)
    return Proposal(MAX_MEMORY_MB, before, str(value), "store_memory", reason, evidence)


def more_for_writes(now: Situation) -> Proposal | None:
    """The largest part of the memory for what is written: in one step, as it costs nothing."""
    settings = now.profile.settings
    together = RATIOS_TOGETHER - float(settings[HIGH_PRIORITY])
    value = round(min(WRITE_BUFFER_RATIO_CEILING, together), 2)
    if not now.rewrites or value <= float(settings[WRITE_BUFFER_RATIO]):
        return None
    why = "the part of the memory for writes is too small"
    return _against_rewriting(now, WRITE_BUFFER_RATIO, f"{value:g}", why)


def more_memory(now: Situation) -> Proposal | None:
    """Four times the memory, as far as the machine and the stream's limit allow."""
    value = min(now.memory_mb * MEMORY_STEP, now.memory_ceiling_mb)
    if now.rss_limit_bytes is not None:
        room = now.rss_limit_bytes - now.typical("rss_bytes")
        value = min(value, now.memory_mb + int(room) // MIB)
    # A smaller step could not be told from noise.
    if not now.rewrites or value < 2 * now.memory_mb:
        return None
    why = f"{now.memory_mb} MiB are too little for it"
    return _against_rewriting(now, MAX_MEMORY_MB, str(value), why)


def _against_rewriting(now: Situation, setting: str, value: str, why: str) -> Proposal:
    names = ("bytes_rewritten", "bytes_written", "logs_replayed", "store_memory", "rss_bytes")
    evidence = {name: now.typical(name) for name in names}
    reason = (
        f"a batch flushes and compacts {_mib(evidence['bytes_rewritten'])} on the local disk, "
        f"and writes {_mib(evidence['bytes_written'])}: {why}"
    )
    before = now.profile.settings[setting]
    return Proposal(setting, before, value, "bytes_rewritten", reason, evidence)


def _mib(count: float) -> str:
    return f"{count / MIB:,.1f} MiB"


def propose(now: Situation, refused: frozenset[tuple[str, bool]]) -> Proposal | None:
    """The first change that a rule asks for, or None.

    `refused` are settings, with whether they would go up, whose trial failed not long ago.
    """
    if now.profile.settings[BOUNDED] != "true":
        return None  # held by hand: the two tuned settings are without effect
    for rule in (less_memory, more_for_writes, more_memory):
        proposal = rule(now)
        if proposal is None or proposal.setting in now.profile.held:
            continue
        if (proposal.setting, proposal.is_increase) not in refused:
            return proposal
    return None


class Judgement(NamedTuple):
    """What is to become of a trial, and why, with figures."""

    verdict: Literal["waiting", "kept", "rolled_back"]
    text: str


def judge(trial: Sequence[Batch], before: Sequence[Batch], figure: str, runs: int) -> Judgement:
    """Judge a trial of so many runs by its batches and those of the profile before.

    Once, by the first MIN_BATCHES that have their like before: who looks until it fits finds
    a gain in noise.
    """
    judged = [batch for batch in trial if changes([batch], before, figure)][:MIN_BATCHES]
    if len(judged) < MIN_BATCHES:
        return _wait(len(judged), runs)
    margin = max(MARGIN, NOISES * (noise(before, figure) or 0))
    found = changes(judged, before, figure)
    said = f"{figure} {as_percent(median(found))} in {counted(len(found), 'like batch')}"
    needed = f"kept from {as_percent(-margin)} on, which is above the noise"
    if median(found) > -margin or max(found) > -LEAST * margin:
        return Judgement("rolled_back", f"{said}: no clear gain ({needed})")
    slower = _slower(judged, before)
    if slower is not None:
        return Judgement("rolled_back", f"{said}, but the store's time {as_percent(slower)}")
    return Judgement("kept", f"{said} ({needed})")


def _wait(batches: int, runs: int) -> Judgement:
    have = f"{batches} of {MIN_BATCHES} batches that have their like before the trial"
    if runs >= MAX_RUNS:
        return Judgement("rolled_back", f"given up after {counted(runs, 'run')} with {have}")
    return Judgement("waiting", f"{have}, after {counted(runs, 'run')}")


def _slower(judged: Sequence[Batch], before: Sequence[Batch]) -> float | None:
    """By how much the store got slower, if that is clear: its clocks are noisy."""
    found = changes(judged, before, "store_ms")
    margin = max(SLOWER, NOISES * (noise(before, "store_ms") or 0))
    return median(found) if median(found) > margin and min(found) > 0 else None
