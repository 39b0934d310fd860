"""The clock of a source by groups: M is the least that those which are not idle have reached.

What a group has reached is the newest `least(event_time, ingested_at)` of its rows, floored to
milliseconds. It is idle when it has been silent for the source's `idle_after`. Silence is counted
commit by commit, in `ingested_at`, so that a repeat finds the same; at most half of `idle_after` of
the time between two: a pause of ingestion is nobody's silence. M never goes back: a group that is
new, or wakes, behind M holds it where it is. The ingest log says of each batch what the groups were
after it. An idle one that M has passed is forgotten; under another `watermark_per` all begin anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Any, NamedTuple

from include.catalogue import FINDINGS
from include.fold.admission import MICROSECOND, US_PER_MS
from include.lake.errors import LakeError
from include.lake.ops import Finding
from include.settings import FOLDER, Source

SECOND_US = 1_000_000


class Group(NamedTuple):
    newest_us: int  # what it has reached
    silent_us: int = 0  # counted since its newest row


@dataclass(frozen=True)
class Groups:
    """The groups of a source with `watermark_per` after a commit."""

    source: Source
    of: Mapping[str, Group] = field(default_factory=dict)

    @property
    def idle_after_us(self) -> int:
        return self.source.idle_after // MICROSECOND

    def awake(self) -> list[tuple[int, str]]:
        """Those that are not idle, what each has reached before its name; the least first."""
        known = ((group, name) for name, group in self.of.items())
        return sorted((g.newest_us, name) for g, name in known if g.silent_us < self.idle_after_us)

    def after(
        self, newest: Mapping[str, int], before_us: int | None, ingested_at_us: int
    ) -> "Groups":
        """With a commit at `ingested_at_us` of rows up to `newest`, behind that of `before_us`."""
        passed_us = 0 if before_us is None else ingested_at_us - before_us
        passed_us = min(passed_us, self.idle_after_us // 2)
        of = {n: g._replace(silent_us=g.silent_us + passed_us) for n, g in self.of.items()}
        for name, event_us in newest.items():
            reached_us = floor_to_ms(min(event_us, ingested_at_us))
            known = of.get(name)
            of[name] = Group(reached_us if known is None else max(reached_us, known.newest_us))
        return replace(self, of=of)

    def set_back(self, to_us: int) -> "Groups":
        """None has reached more than `to_us`, so M stays there until each has been heard of."""
        of = {n: g._replace(newest_us=min(g.newest_us, to_us)) for n, g in self.of.items()}
        return replace(self, of=of)

    def without_passed(self, watermark_us: int) -> "Groups":
        """Without the idle ones that M has passed. LakeError when too many are left."""
        awake = {name for _, name in self.awake()}
        of = {n: g for n, g in self.of.items() if g.newest_us > watermark_us or n in awake}
        if len(of) > self.source.watermark_groups:
            raise LakeError(
                f"source {self.source.name} has {len(of):,} groups by watermark_per, more than its "
                "watermark_groups: take a field with fewer values, or a shorter idle_after",
                code="too_many_groups",
                subject=self.source.name,
            )
        return replace(self, of=of)

    def metadata(self) -> dict[str, object]:
        return {"per": self.source.watermark_per, "of": self.of}

    def held_back(self) -> list[Finding]:
        """A finding on the group that the watermark waits for, far behind the others."""
        (least_us, least), *others = self.awake() or [(0, "")]
        by_us = median_low([us for us, _ in others]) - least_us if others else 0
        if by_us <= self.idle_after_us:
            return []
        said = (
            f"{least!r} is {by_us / SECOND_US:,.0f} s behind the others: the watermark waits for it"
        )
        by, most = by_us / SECOND_US, self.idle_after_us / SECOND_US
        found = FINDINGS["group_behind"].found
        return [found(self.source.name, said, figure=by, limit=most, unit="seconds")]


def logged_groups(said: Mapping[str, Any], source: Source) -> Groups | None:
    """What the ingest log says of the groups; None of a source without `watermark_per`."""
    if source.watermark_per is None:
        return None
    known = said["of"] if said.get("per") == source.watermark_per else {}
    return Groups(source, {name: Group(*values) for name, values in known.items()})


def floor_to_ms(micros: int) -> int:
    return micros // US_PER_MS * US_PER_MS


def group_of(source: Source, source_file: str, row: Mapping[str, Any]) -> str:
    """The name of the group that a row is of, which has values of fields as an outcome does."""
    if source.watermark_per != FOLDER:
        return str(row[f"value_{source.watermark_per}"])
    folder, slash, _ = source_file.partition("/")
    return folder if slash else ""
