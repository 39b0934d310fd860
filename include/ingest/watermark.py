"""The source watermark, as each commit to bronze moves it on.

It is the largest `least(event_time, ingested_at)` ever committed, floored to milliseconds, or of all
since set-watermark has set it back. Each commit stores it on its rows, before and after: whether a
row is late must not depend on anything read later. `ingested_at` is one instant for each commit,
later than in every earlier one even when the machine's clock goes back: streams in processing time
fold by it.

With `watermark_per` it is the least that the groups which are not idle have reached. A group is idle
when it has been silent for the source's `idle_after`. Silence is counted commit by commit, in
`ingested_at`, so that a repeat finds the same; at most half of `idle_after` of the time between two:
a pause of ingestion is nobody's silence. The watermark never goes back: a group that is new, or
wakes, behind it holds it where it is. An idle group that it has passed is forgotten.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Any, NamedTuple

from include.catalogue import FINDINGS
from include.fold.admission import MICROSECOND, US_PER_MS, instant_of
from include.lake.errors import LakeError
from include.lake.ops import Finding
from include.settings import FOLDER, Source

SECOND_US = 1_000_000


class Group(NamedTuple):
    newest_us: int  # the newest `least(event_time, ingested_at)` of its rows, floored
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
        """The groups that are not idle, what each has reached before its name; the least first."""
        known = ((group, name) for name, group in self.of.items())
        return sorted((g.newest_us, name) for g, name in known if g.silent_us < self.idle_after_us)

    def after(
        self, newest: Mapping[str, int], before_us: int | None, ingested_at_us: int
    ) -> "Groups":
        """The groups after a commit, behind one at `before_us`, of rows up to `newest` by group."""
        passed_us = 0 if before_us is None else ingested_at_us - before_us
        passed_us = min(passed_us, self.idle_after_us // 2)
        of = {n: g._replace(silent_us=g.silent_us + passed_us) for n, g in self.of.items()}
        for name, event_us in newest.items():
            reached_us = floor_to_ms(min(event_us, ingested_at_us))
            known = of.get(name)
            of[name] = Group(reached_us if known is None else max(reached_us, known.newest_us))
        return replace(self, of=of)

    def set_back(self, to_us: int) -> "Groups":
        """No group has reached more than `to_us`: the watermark stays there until each has rows again."""
        of = {n: g._replace(newest_us=min(g.newest_us, to_us)) for n, g in self.of.items()}
        return replace(self, of=of)

    def without_passed(self, watermark_us: int) -> "Groups":
        """Drop idle groups that the watermark has passed; raises LakeError when too many are left."""
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

    def held_back(self) -> list[Finding]:
        """A finding on the group that the watermark waits for, far behind the others."""
        (least_us, least), *others = self.awake() or [(0, "")]
        by_us = median_low([us for us, _ in others]) - least_us if others else 0
        if by_us <= self.idle_after_us:
            return []
        by, most = by_us / SECOND_US, self.idle_after_us / SECOND_US
        said = f"{least!r} is {by:,.0f} s behind the others: the watermark waits for it"
        found = FINDINGS["group_behind"].found
        return [found(self.source.name, said, figure=by, limit=most, unit="seconds")]


def logged_groups(logged: Mapping[str, Any], source: Source) -> Groups | None:
    """The groups as logged, none under another `watermark_per`; None for a source without one."""
    if source.watermark_per is None:
        return None
    known = logged["of"] if logged.get("per") == source.watermark_per else {}
    return Groups(source, {name: Group(*values) for name, values in known.items()})


def group_of(source: Source, source_file: str, row: Mapping[str, Any]) -> str:
    """The name of a row's group; `row` has values of fields as an outcome does."""
    if source.watermark_per != FOLDER:
        return str(row[f"value_{source.watermark_per}"])
    folder, slash, _ = source_file.partition("/")
    return folder if slash else ""


@dataclass(frozen=True)
class SourceWatermark:
    """The newest instants in bronze, in microseconds; None before its first rows."""

    watermark_us: int | None = None
    ingested_at_us: int | None = None
    groups: Groups | None = None  # of a source with `watermark_per`


def watermark_instants(before: SourceWatermark, after: SourceWatermark) -> dict[str, int | None]:
    """The columns of a commit's rows that say how it moves the watermark, in microseconds."""
    watermarks = {"watermark_before": before.watermark_us, "watermark_after": after.watermark_us}
    return {"ingested_at": after.ingested_at_us, **watermarks}


def advance_watermark(
    before: SourceWatermark, newest_us: int, now_us: int, groups: Mapping[str, int] | None = None
) -> SourceWatermark:
    """The watermark after a commit, at `now_us`, of events up to `newest_us`, by group up to `groups`.

    A heartbeat has no `groups`: one that is not idle is believed more, and holds the watermark back.
    """
    at_us = _ingested_at_after(before, now_us)
    reached_us, after = floor_to_ms(min(newest_us, at_us)), None
    if before.groups is not None:
        after = before.groups.after(groups or {}, before.ingested_at_us, at_us)
        awake = [us for us, _ in after.awake()]
        reached_us = min([*awake, reached_us] if groups is None else awake)
    if before.watermark_us is not None:
        reached_us = max(reached_us, before.watermark_us)
    return SourceWatermark(reached_us, at_us, after and after.without_passed(reached_us))


def move_watermark(before: SourceWatermark, to_us: int, now_us: int) -> SourceWatermark:
    """The watermark after a commit, at `now_us`, of a source whose watermark is known to be `to_us`."""
    return SourceWatermark(to_us, _ingested_at_after(before, now_us))


def set_watermark_back(before: SourceWatermark, to_us: int, now_us: int) -> SourceWatermark:
    """The watermark after the commit, at `now_us`, that sets it back to `to_us`."""
    at_us, to_us = _ingested_at_after(before, now_us), floor_to_ms(to_us)
    if before.groups is None:
        return SourceWatermark(to_us, at_us)
    groups = before.groups.after({}, before.ingested_at_us, at_us).set_back(to_us)
    return SourceWatermark(to_us, at_us, groups.without_passed(to_us))


def _ingested_at_after(before: SourceWatermark, now_us: int) -> int:
    if before.ingested_at_us is None:
        return floor_to_ms(now_us)
    return max(floor_to_ms(now_us), before.ingested_at_us + US_PER_MS)


def floor_to_ms(micros: int) -> int:
    return micros // US_PER_MS * US_PER_MS


def as_text(micros: int) -> str:
    return instant_of(micros).isoformat(timespec="milliseconds")
