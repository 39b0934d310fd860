"""What is wrong with a stream and its source now, and what of it a check has found to be over.

A finding is what one run or check saw. An alert lasts: it opens with a finding of severity warning
or error, and closes when a run and its check have come that do not find it any more. A run that
failed has looked at nothing, so it closes nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from include.alerts.known import KNOWN
from include.coverage.findings import OF_COVERAGE
from include.fold.admission import instant_of
from include.lake.findings import Finding
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.page.overview import (
    READ_ERRORS,
    WINDOW_DAYS,
    newest_of_each,
    open_findings,
    still_open,
)
from include.page.recorded import INGEST, RUN, Recorded, Row
from include.settings import Stream
from include.text_table import first_names

TOLD = ("error", "warning")  # the severities that people are told of, the worst first
BEHIND, FAILED = "behind_promise", "run_failed"
OF_CHECKS = {name for name, known in KNOWN.items() if known.by == "check"}
UNSURE = {"written_while_measured", "checkpoint_unreadable"}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How it stands with one subject of `ops/findings`."""

    subject: str
    open: Mapping[str, Row]  # by finding
    is_checked: bool  # what is not open is over
    over: frozenset[str] = frozenset()  # over in any case, unless it is open
    unknown: frozenset[str] = frozenset()  # nobody has looked: neither open nor over
    recent: Sequence[Row] = ()  # found of late, be it over by now


def standings(
    lake: Lake,
    stream: Stream,
    now: datetime,
    streams: Collection[str],
    failed: Sequence[str] | None = None,
) -> list[Standing]:
    """Of `stream`, and of its source.

    `streams`: the names of all. `failed`: the tasks of this Dag run that failed; None: not known.
    """
    recorded = Recorded(lake, now - timedelta(days=WINDOW_DAYS), stream)
    found = open_findings(recorded, stream)
    over = set()
    runs = recorded.runs.get((RUN, stream.name))
    until = None if runs is None else runs.succeeded.get("until")
    try:
        coverage, wrong = recorded.coverage(stream)
    except READ_ERRORS:
        pass  # coverage_unreadable, by the check, says so
    else:
        if coverage.until_us is not None:
            until = instant_of(coverage.until_us)
        found = still_open(found, wrong)
        over |= OF_COVERAGE - {finding.finding for finding in wrong}
    own = [row for row in found if row["subject"] == stream.name]
    over |= {BEHIND}
    own += _row(stream.name, _behind(stream, until, now))
    if failed is not None:
        over |= {FAILED}
        own += _row(stream.name, _failed(recorded, stream, failed))
    mine = Standing(
        subject=stream.name,
        open=worst(own),
        is_checked=_is_checked(lake, recorded, stream, own=own),
        over=frozenset(over),
        # Of a backfill, or a deadline: that the newest run was checked says nothing of its other tasks.
        unknown=frozenset([FAILED] if failed is None else []),
        recent=_recent(recorded, stream.name, now),
    )
    # A stream that is called as its source is has the findings of both, and tells of them.
    if stream.source in streams:
        return [mine]
    of_source = Standing(
        subject=stream.source,
        open=worst(row for row in found if row["subject"] == stream.source),
        is_checked=_is_taken_in(recorded, stream),
        recent=_recent(recorded, stream.source, now),
    )
    return [mine, of_source]


def _recent(recorded: Recorded, subject: str, now: datetime) -> list[Row]:
    """What runs and commands have told of themselves in the window, be it over by now.

    Others may have come before anybody looked, such as a run by hand, a second try, or another
    stream that took more of the source in: what is an event, none of them finds again. What a
    check finds, the next one does, unless it is over.
    """
    rows = [
        row
        for row in recorded.findings.get(subject, ())
        if row["severity"] in TOLD and row["finding"] not in OF_CHECKS and row["found_at"] <= now
    ]
    return newest_of_each(rows, ("run_id", "finding"))


def worst(rows: Iterable[Row]) -> dict[str, Row]:
    """Of each finding the worst row that people are told of, with the count of all; how many others
    there are is in its detail."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        if row["severity"] in TOLD:
            by_name.setdefault(row["finding"], []).append(row)
    return {name: _together(found) for name, found in by_name.items()}


def _together(rows: list[Row]) -> Row:
    first = min(rows, key=lambda row: (TOLD.index(row["severity"]), -(row.get("count") or 0)))
    others = {row["detail"]: row for row in rows if row["detail"] != first["detail"]}.values()
    if not others:
        return first
    counts = [n for row in (first, *others) if (n := row.get("count")) is not None]
    detail = f"{first['detail']} (and {len(others)} more)"
    return {**first, "detail": detail, "count": sum(counts) if counts else None}


def _is_checked(lake: Lake, recorded: Recorded, stream: Stream, own: Sequence[Row]) -> bool:
    """Whether the newest run succeeded, and a check has looked at what it left, all of it."""
    runs = recorded.runs.get((RUN, stream.name))
    if runs is None or runs.newest["outcome"] != "succeeded":
        return False
    if any(row["finding"] in UNSURE for row in own):
        return False
    since = ("measured_at", runs.newest["started_at"])
    where = {"stream": stream.name}
    return bool(read_ops(lake, "checkpoint_sizes", where, ("measured_at",), since).num_rows)


def _is_taken_in(recorded: Recorded, stream: Stream) -> bool:
    runs = recorded.runs.get((INGEST, stream.source))
    return runs is not None and runs.newest["outcome"] == "succeeded"


def _behind(stream: Stream, until: datetime | None, now: datetime) -> Finding | None:
    if stream.fresh_within is None or until is None or now - until <= stream.fresh_within:
        return None
    lag, promised = (now - until).total_seconds(), stream.fresh_within.total_seconds()
    return Finding(
        finding=BEHIND,
        severity="warning",
        figure=lag,
        limit=promised,
        unit="seconds",
        detail=f"tables/{stream.name} is complete until {until:%Y-%m-%d %H:%M:%S} UTC, and "
        f"fresh_within={stream.fresh_within} is promised",
        action=f"see whether runs of stream_{stream.name} fail, wait or take too long. If they are "
        f"green, nothing new has come: see to the producers of source {stream.source}, or give it a "
        "clock_grace",
    )


def _failed(recorded: Recorded, stream: Stream, tasks: Sequence[str]) -> Finding | None:
    if not tasks:
        return None
    errors = [
        str(runs.newest["error"])
        for key in ((INGEST, stream.source), (RUN, stream.name))
        if (runs := recorded.runs.get(key)) and runs.newest["outcome"] == "failed"
    ]
    return Finding(
        finding=FAILED,
        severity="error",
        detail="; ".join([f"failed: {first_names(sorted(tasks))}", *errors]),
        action="the task's log has the error and what to do; clearing the task is always safe",
    )


def _row(subject: str, finding: Finding | None) -> list[Mapping[str, Any]]:
    return [] if finding is None else [asdict(finding) | {"subject": subject}]
