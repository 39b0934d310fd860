"""The clock of a source by groups: M is the least that those which are not idle have reached.

What a group has reached is the newest `least(event_time, ingested_at)` of its rows, floored to
milliseconds. It is idle when it has been silent for the source's `idle_after`. Silence is counted
commit by commit, in `ingested_at`: never by the clock of whoever reads, so that a repeat, a reseed
and a repair find the same. Of the time between two commits at most half of `idle_after` counts: a
pause of ingestion is nobody's silence, and what waits behind it must not be late for that.

M never goes back: a group that is new, or wakes, behind M leaves it where it is, and holds it
there until the group has come up to it or is idle again.

The ingest log says of each batch what the groups were after it, so no kill comes between. An
idle group that M has passed is forgotten: M would be the same with it. Under another `watermark_per`
the groups begin anew, and M goes on from where it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Any, NamedTuple

from include.fold.admission import MICROSECOND, US_PER_MS
from include.lake.errors import LakeError
from include.lake.findings import Finding
from include.settings import FOLDER, Source

SECOND_US = 1_000_000
# The newest event time of each group of a commit's rows, in microseconds.
Newest = Mapping[str, int]


class Group(NamedTuple):
    """What is known of a group, in microseconds."""

    newest_us: int  # what it has reached
    seen_us: int  # `ingested_at` of the newest commit that has a row of it
    silent_us: int = 0  # counted since


@dataclass(frozen=True)
class Groups:
    """The groups of a source after a commit."""

    source: str
    per: str
    idle_after_us: int
    at_most: int = field(compare=False)
    of: Mapping[str, Group] = field(default_factory=dict)

    def is_idle(self, group: Group) -> bool:
        return group.silent_us >= self.idle_after_us

    def awake(self) -> dict[str, Group]:
        """Those that are not idle."""
        return {name: group for name, group in self.of.items() if not self.is_idle(group)}

    def reached_us(self, claimed_us: int | None = None) -> int | None:
        """The least that those which are not idle have reached, and `claimed_us`; None: nothing."""
        reached = [group.newest_us for group in self.awake().values()]
        return min([*reached, *([] if claimed_us is None else [claimed_us])], default=None)

    def after(self, newest: Newest, before_us: int | None, ingested_at_us: int) -> "Groups":
        """With a commit at `ingested_at_us` behind that of `before_us`."""
        passed_us = counted_us(before_us, ingested_at_us, self.idle_after_us)
        of = {n: g._replace(silent_us=g.silent_us + passed_us) for n, g in self.of.items()}
        for name, event_us in newest.items():
            reached_us = floor_to_ms(min(event_us, ingested_at_us))
            if name in of:
                reached_us = max(reached_us, of[name].newest_us)
            of[name] = Group(reached_us, ingested_at_us)
        return replace(self, of=of)

    def set_back(self, to_us: int) -> "Groups":
        """None has reached more than `to_us`, so M stays there until each has been heard of."""
        of = {n: g._replace(newest_us=min(g.newest_us, to_us)) for n, g in self.of.items()}
        return replace(self, of=of)

    def without_passed(self, watermark_us: int) -> "Groups":
        """Without the idle ones that M has passed. LakeError when too many are left."""
        of = {
            name: group
            for name, group in self.of.items()
            if group.newest_us > watermark_us or not self.is_idle(group)
        }
        if len(of) > self.at_most:
            raise LakeError(
                f"source {self.source} has {len(of):,} groups by watermark_per={self.per!r} that "
                "hold its watermark or are ahead of it, and its watermark_groups allows "
                f"{self.at_most:,}: nothing more is ingested. Take a field with fewer values, a "
                "shorter idle_after, or raise watermark_groups: the ingest log names all of them "
                "with each batch",
                code="too_many_groups",
                subject=self.source,
            )
        return replace(self, of=of)

    def metadata(self) -> dict[str, object]:
        """What the ingest log says of them, for `logged_groups`."""
        return {"per": self.per, "of": self.of}

    def held_back(self) -> list[Finding]:
        """A finding on the group that the watermark waits for, when the others are far ahead of it."""
        awake = sorted((group.newest_us, name) for name, group in self.awake().items())
        if len(awake) < 2:
            return []
        least_us, least = awake[0]
        by_us = median_low([us for us, _ in awake[1:]]) - least_us
        if by_us <= self.idle_after_us:
            return []
        return [
            Finding(
                finding="group_behind",
                severity="warning",
                figure=by_us / SECOND_US,
                limit=self.idle_after_us / SECOND_US,
                unit="seconds",
                detail=f"{self.per.strip('<>')} {least!r} is {by_us / SECOND_US:,.0f} s behind the "
                "others: the watermark waits for it",
                action="see to that producer; without rows of it for idle_after the watermark goes on",
            )
        ]


def no_groups(source: Source) -> Groups | None:
    """Before the first commit; None of a source without `watermark_per`."""
    if source.watermark_per is None:
        return None
    idle_after_us = source.idle_after // MICROSECOND
    return Groups(source.name, source.watermark_per, idle_after_us, source.watermark_groups)


def logged_groups(said: Mapping[str, Any], source: Source) -> Groups | None:
    """What the ingest log says of the groups; none of them yet where they were others."""
    groups = no_groups(source)
    if groups is None or said.get("per") != groups.per:
        return groups
    return replace(groups, of={name: Group(*values) for name, values in said["of"].items()})


def counted_us(before_us: int | None, at_us: int, idle_after_us: int) -> int:
    """What the time between two commits counts as silence."""
    return 0 if before_us is None else min(at_us - before_us, idle_after_us // 2)


def floor_to_ms(micros: int) -> int:
    """As watermarks are."""
    return micros // US_PER_MS * US_PER_MS


def group_of(source: Source, source_file: str, row: Mapping[str, Any]) -> str:
    """The name of the group that a row is of, which has values of fields as an outcome does."""
    if source.watermark_per != FOLDER:
        return str(row[f"value_{source.watermark_per}"])
    folder, slash, _ = source_file.partition("/")
    return folder if slash else ""
