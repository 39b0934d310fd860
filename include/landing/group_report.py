"""What people see of a source's groups: `ops/watermark_groups`, and who holds the clock or runs ahead.

Written at the end of an ingest run, of what bronze says by then: nothing is decided by it.
"""

from collections.abc import Mapping
from datetime import datetime
from statistics import median_low
from typing import Any

from include.fold.admission import instant_of, micros_of
from include.lake.findings import Finding
from include.lake.ops import CLOCKS_APART, read_ops, upsert_ops
from include.landing.clock import as_text, read_clock
from include.landing.group_clock import Groups
from include.landing.ingest_log import Ingestion
from include.settings import Source

TABLE = "watermark_groups"
KEY = ("source", "group")
SECOND_US = 1_000_000
NAMED = 3  # in a sentence

Row = dict[str, Any]


def report_groups(ingestion: Ingestion, now: datetime) -> list[Finding]:
    """Bring `ops/watermark_groups` up to date; the findings."""
    lake, source = ingestion.lake, ingestion.source
    clock = read_clock(ingestion)
    if clock.groups is None or clock.watermark_us is None:
        return []
    known = {
        row["group"]: row for row in read_ops(lake, TABLE, {"source": source.name}).to_pylist()
    }
    rows = _rows(source, clock.groups, clock.watermark_us)
    rows |= _forgotten(known, rows, clock.watermark_us)
    new = [row for name, row in rows.items() if _without_time(known.get(name, {})) != row]
    if new:
        measured = {"measured_at": now}
        upsert_ops(lake, TABLE, KEY, [row | measured for row in new])
    goes_on = _goes_on(clock.ingested_at_us, now)
    return [
        *_behind(clock.groups, goes_on),
        *_late(clock.groups, clock.watermark_us),
        *_fallen(known, rows),
    ]


def _rows(source: Source, groups: Groups, watermark_us: int) -> dict[str, Row]:
    held_us = groups.reached_us()
    return {
        name: {
            "source": source.name,
            "group": name,
            "newest_event_time": instant_of(group.newest_us),
            "last_seen_at": instant_of(group.seen_us),
            "is_idle": groups.is_idle(group),
            "is_least": not groups.is_idle(group) and group.newest_us == held_us,
            "ahead_seconds": (group.newest_us - watermark_us) / SECOND_US,
        }
        for name, group in groups.of.items()
    }


def _forgotten(
    known: Mapping[str, Row], rows: Mapping[str, Row], watermark_us: int
) -> dict[str, Row]:
    """Those that were not idle when last looked at, and are by now, the watermark beyond them."""
    gone = {name: row for name, row in known.items() if name not in rows and not row["is_idle"]}
    return {
        name: _without_time(row)
        | {
            "is_idle": True,
            "is_least": False,
            "ahead_seconds": (micros_of(row["newest_event_time"]) - watermark_us) / SECOND_US,
        }
        for name, row in gone.items()
    }


def _without_time(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "measured_at"}


def _goes_on(ingested_at_us: int | None, now: datetime) -> str:
    """What becomes of the watermark where a group stays silent: silence is counted from commit to
    commit, and none of them is before the one before it."""
    if ingested_at_us is None or instant_of(ingested_at_us) < now + CLOCKS_APART:
        return "without rows of it for idle_after the watermark goes on"
    return (
        f"a machine's clock was ahead: until {instant_of(ingested_at_us):%F %R} UTC no silence is "
        "counted, and the watermark goes on with newer rows of it alone"
    )


def _behind(groups: Groups, goes_on: str) -> list[Finding]:
    """The least, and the one that is furthest ahead, where the rest is far from them."""
    awake = sorted((group.newest_us, name) for name, group in groups.awake().items())
    if len(awake) < 2:
        return []
    (least_us, least), (most_us, most) = awake[0], awake[-1]
    others_us = median_low([us for us, _ in awake[1:]])
    found = [_far("group_behind", least, others_us - least_us, groups, goes_on)]
    if len(awake) > 2:  # of two nobody knows which is right
        others_us = median_low([us for us, _ in awake[:-1]])
        found.append(_far("group_ahead", most, most_us - others_us, groups, goes_on))
    return [finding for finding in found if finding is not None]


def _far(finding: str, name: str, by_us: int, groups: Groups, goes_on: str) -> Finding | None:
    if by_us <= groups.idle_after_us:
        return None
    behind = finding == "group_behind"
    return Finding(
        finding=finding,
        severity="warning",
        figure=by_us / SECOND_US,
        limit=groups.idle_after_us / SECOND_US,
        unit="seconds",
        detail=f"{_called(groups.per, name)} is {by_us / SECOND_US:,.0f} s "
        f"{'behind' if behind else 'ahead of'} the others"
        + (": the watermark waits for it" if behind else ", and makes no row of theirs late"),
        action=f"see to that producer; {goes_on}"
        if behind
        else "if its clock is wrong, set it right",
    )


def _late(groups: Groups, watermark_us: int) -> list[Finding]:
    """Those that are new, or woke, behind the watermark."""
    late = {n: g for n, g in groups.awake().items() if g.newest_us < watermark_us}
    if not late:
        return []
    return [
        Finding(
            finding="group_behind_watermark",
            severity="warning",
            count=len(late),
            event_time_to=instant_of(max(group.newest_us for group in late.values())),
            detail=f"{_names(groups.per, late)} came when the watermark was beyond them already, as "
            f"they were new or had been idle; it stays at {as_text(watermark_us)} until they have "
            "come up to it, and their rows may be late",
            action="`./stateful reseed` of a stream takes late rows in; if these producers are "
            "always this far apart, raise idle_after",
        )
    ]


def _fallen(known: Mapping[str, Row], rows: Mapping[str, Row]) -> list[Finding]:
    """Those that fell idle since they were last looked at."""
    fallen = [n for n, row in rows.items() if row["is_idle"] and not known.get(n, row)["is_idle"]]
    if not fallen:
        return []
    return [
        Finding(
            finding="group_idle",
            severity="info",
            count=len(fallen),
            detail=f"no row has come of {_names('group', fallen)} for idle_after: the watermark "
            "goes on without them, and what they still send with older times may be late",
        )
    ]


def _called(per: str, name: str) -> str:
    return f"{per.strip('<>')} {name!r}"  # of FOLDER, too


def _names(per: str, names: Any) -> str:
    some = [_called(per, name) for name in sorted(names)[:NAMED]]
    more = len(names) - len(some)
    return ", ".join(some) + (f" and {more:,} more" if more else "")
