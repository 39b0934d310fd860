"""The rules by which a setting is changed: when, to what, and by which figure it is judged.

Each proposes one step of one setting, within its floor and ceiling. Their order is the order
of their price: first what protects the machine, then what costs nothing, then memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from include.care.rocksdb.history import Batch
from include.care.rocksdb.memory_limit import FLOOR_MB
from include.care.rocksdb.profiles import Profile
from include.care.rocksdb.settings import (
    BOUNDED,
    HIGH_PRIORITY,
    MAX_MEMORY_MB,
    RATIOS_TOGETHER,
    WRITE_BUFFER_RATIO,
    WRITE_BUFFER_RATIO_CEILING,
)
from include.settings import MIB

# Each doubling saves about as many bytes of rewriting; two are well above noise.
MEMORY_STEP = 4
# A batch that rewrites less than both has memory enough.
REWRITTEN_BYTES, REWRITTEN_SHARE = 1 * MIB, 0.25
# Of the process's memory: with less, RocksDB is not what makes it large.
STORE_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Proposal:
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


Rule = Callable[[Situation], Proposal | None]


def less_memory(now: Situation) -> Proposal | None:
    """A quarter of the memory when the process is above the stream's limit because of it."""
    rss, store = now.typical("rss_bytes"), now.typical("store_memory")
    limit = now.rss_limit_bytes
    value = max(now.memory_mb // MEMORY_STEP, FLOOR_MB)
    # With a limit that the store does not reach, a lower one would change nothing.
    in_the_way = store >= max(STORE_SHARE * rss, value * MIB)
    if limit is None or rss <= limit or not in_the_way or value >= now.memory_mb:
        return None
    return Proposal(
        setting=MAX_MEMORY_MB,
        before=str(now.memory_mb),
        value=str(value),
        figure="store_memory",
        reason=f"a run holds {_mib(rss)}, above the stream's limit of {_mib(limit)}, "
        f"{_mib(store)} of it in the state stores",
        evidence={"rss_bytes": rss, "rss_limit_bytes": limit, "store_memory": store},
    )


def more_for_writes(now: Situation) -> Proposal | None:
    """The largest part of the memory for what is written: in one step, as it costs nothing."""
    settings = now.profile.settings
    ratio = float(settings[WRITE_BUFFER_RATIO])
    together = RATIOS_TOGETHER - float(settings[HIGH_PRIORITY])
    value = round(min(WRITE_BUFFER_RATIO_CEILING, together), 2)
    if not now.rewrites or value <= ratio:
        return None
    return Proposal(
        setting=WRITE_BUFFER_RATIO,
        before=settings[WRITE_BUFFER_RATIO],
        value=f"{value:g}",
        figure="bytes_rewritten",
        reason=f"{_rewriting(now)}: the part of the memory for writes is too small",
        evidence=_rewriting_evidence(now),
    )


def more_memory(now: Situation) -> Proposal | None:
    """Four times the memory, as far as the machine and the stream's limit allow."""
    value = min(now.memory_mb * MEMORY_STEP, now.memory_ceiling_mb)
    if now.rss_limit_bytes is not None:
        room = now.rss_limit_bytes - now.typical("rss_bytes")
        value = min(value, now.memory_mb + int(room) // MIB)
    # A smaller step could not be told from noise.
    if not now.rewrites or value < 2 * now.memory_mb:
        return None
    return Proposal(
        setting=MAX_MEMORY_MB,
        before=str(now.memory_mb),
        value=str(value),
        figure="bytes_rewritten",
        reason=f"{_rewriting(now)}: {now.memory_mb} MiB are too little for it",
        evidence=_rewriting_evidence(now),
    )


RULES: tuple[Rule, ...] = (less_memory, more_for_writes, more_memory)


def propose(now: Situation, refused: frozenset[tuple[str, bool]]) -> Proposal | None:
    """The first change that a rule asks for, or None.

    `refused` are settings, with whether they would go up, whose trial failed not long ago.
    """
    if now.profile.settings[BOUNDED] != "true":
        return None  # held by hand: the two tuned settings are without effect
    for rule in RULES:
        proposal = rule(now)
        if proposal is None or proposal.setting in now.profile.held:
            continue
        if (proposal.setting, proposal.is_increase) not in refused:
            return proposal
    return None


def _rewriting(now: Situation) -> str:
    return (
        f"a batch flushes and compacts {_mib(now.typical('bytes_rewritten'))} on the local disk, "
        f"and writes {_mib(now.typical('bytes_written'))}"
    )


def _rewriting_evidence(now: Situation) -> dict[str, float]:
    names = ("bytes_rewritten", "bytes_written", "logs_replayed", "store_memory", "rss_bytes")
    return {name: now.typical(name) for name in names}


def _mib(count: float) -> str:
    return f"{count / MIB:,.1f} MiB"
