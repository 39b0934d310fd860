"""`ops/alerts`: what opened and closed, each once, who was told of it, and the message that people read.

Written under a lease of its subject: whoever looks second, at once or again after a kill, finds it
recorded and records nothing. What was recorded and not told is told by the next look.

What is wrong with a stream and its source now, and what of it a check has found to be over.

A finding is what one run or check saw. An alert lasts: it opens with a finding of severity warning
or error, and closes when a run and its check have come that do not find it any more. A run that
failed has looked at nothing, so it closes nothing.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from operator import itemgetter
from typing import Any

from include.catalogue import FINDINGS
from include.lake.findings import Finding, finding_lines
from include.lake.lease import hold_lease
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake
from include.maintain.plan_care import TablePlan
from include.observe.stream_line import (
    INGEST,
    RUN,
    WINDOW_DAYS,
    Recorded,
    Row,
    StreamLine,
    line_without_state,
    newest_of_each,
)
from include.settings import Stream
from include.text_table import first_names

TOLD = ("error", "warning")  # the severities that people are told of, the worst first
BEHIND, FAILED = "behind_promise", "run_failed"
OF_CHECKS = {name for name, figure in FINDINGS.items() if figure.by == "check"}
UNSURE = {"written_while_measured", "checkpoint_unreadable"}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How it stands with one subject of `ops/findings`."""

    subject: str
    open: Mapping[str, Row]  # by finding
    is_checked: bool  # what is not open is over
    over: Set[str] = frozenset()  # over in any case, unless it is open
    unknown: Set[str] = frozenset()  # nobody has looked: neither open nor over
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
    line = line_without_state(recorded, stream, now)
    own = [row for row in line.found if row["subject"] == stream.name]
    for finding in (_behind(stream, line), _failed(recorded, stream, failed or ())):
        own += [] if finding is None else [asdict(finding) | {"subject": stream.name}]
    mine = Standing(
        subject=stream.name,
        open=worst(own),
        is_checked=_is_checked(recorded, stream, own),
        over=line.mended | {BEHIND} | (set() if failed is None else {FAILED}),
        # Of a backfill, or a deadline: that the newest run was checked says nothing of its other tasks.
        unknown={FAILED} if failed is None else set(),
        recent=_recent(recorded, stream.name, now),
    )
    # A stream that is called as its source is has the findings of both, and tells of them.
    if stream.source in streams:
        return [mine]
    of_source = Standing(
        subject=stream.source,
        open=worst(row for row in line.found if row["subject"] == stream.source),
        is_checked=_has_succeeded(recorded, INGEST, stream.source),
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
        if row["severity"] in TOLD
        and row["finding"] not in OF_CHECKS
        and recorded.since <= row["found_at"] <= now
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


def _is_checked(recorded: Recorded, stream: Stream, own: Sequence[Row]) -> bool:
    """Whether the newest run succeeded, and a check has looked at what it left, all of it."""
    if not _has_succeeded(recorded, RUN, stream.name):
        return False
    if any(row["finding"] in UNSURE for row in own):
        return False
    since = ("measured_at", recorded.runs[RUN, stream.name].newest["started_at"])
    where = {"stream": stream.name}
    return bool(
        read_ops(recorded.lake, "checkpoint_sizes", where, ("measured_at",), since).num_rows
    )


def _has_succeeded(recorded: Recorded, job: str, subject: str) -> bool:
    """Whether the newest run has."""
    runs = recorded.runs.get((job, subject))
    return runs is not None and runs.newest["outcome"] == "succeeded"


def _behind(stream: Stream, line: StreamLine) -> Finding | None:
    promised = stream.fresh_within
    if promised is None or line.until_lag is None or line.until_lag <= promised:
        return None
    lag, most = line.until_lag.total_seconds(), promised.total_seconds()
    said = f"tables/{stream.name} is complete until {line.until:%F %T} UTC, and fresh_within={promised} is promised"
    return FINDINGS[BEHIND].found(stream.name, said, figure=lag, limit=most, unit="seconds")


def _failed(recorded: Recorded, stream: Stream, tasks: Sequence[str]) -> Finding | None:
    if not tasks:
        return None
    errors = [
        str(recorded.runs[of].newest["error"])
        for of in ((INGEST, stream.source), (RUN, stream.name))
        if of in recorded.runs and not _has_succeeded(recorded, *of)
    ]
    said = "; ".join([f"failed: {first_names(sorted(tasks))}", *errors])
    return FINDINGS[FAILED].found(stream.name, said)


KEY = ("subject", "number", "finding")
PATIENCE = timedelta(minutes=1)  # for another look, of a second


def record_changes(
    lake: Lake, by: str, dag_run_id: str | None, standings: Iterable[Standing], now: datetime
) -> None:
    """Record what has opened and closed since it was last looked at; `by` is who is to tell of it."""
    known = {"told_by": by, "dag_run_id": dag_run_id, "at": now}
    for standing in standings:
        with hold_lease(lake, f"look-{standing.subject.replace('/', '-')}", PATIENCE):
            rows = _rows(lake, subject=standing.subject)
            number = 1 + max((row["number"] for row in rows), default=0)
            given = {**known, "subject": standing.subject, "number": number}
            append_ops(lake, "alerts", [{**given, **row} for row in _changes(standing, rows)])


def _changes(standing: Standing, rows: Sequence[Row]) -> list[dict[str, Any]]:
    newest = {row["finding"]: row for row in rows}
    known = {name: row for name, row in newest.items() if row["change"] == "opened"}
    missed = worst(
        row
        for row in standing.recent
        if (name := row["finding"]) not in known
        and (name not in newest or newest[name]["at"] < row["found_at"])
    )
    opened = [
        _told(row) | {"change": "opened"}
        for name, row in {**standing.open, **missed}.items()
        if name not in known or TOLD.index(row["severity"]) < TOLD.index(known[name]["severity"])
    ]
    closed = [
        _told(row) | {"change": "closed", "opened_at": row["at"]}
        for name, row in known.items()
        if name not in standing.open.keys() | standing.unknown
        and (standing.is_checked or name in standing.over)
    ]
    return opened + closed


def _told(row: Row) -> dict[str, Any]:
    return {name: row.get(name) for name in ("finding", "severity", "count", "detail", "action")}


def changes_of(lake: Lake, by: str, dag_run_id: str) -> list[Row]:
    """Read the changes that one Dag run recorded."""
    return _rows(lake, told_by=by, dag_run_id=dag_run_id)


def untold(lake: Lake, by: str) -> list[Row]:
    """What is still to be told, in order; `heard_by` has the notifiers that have told of it."""
    rows = [row for row in _rows(lake, told_by=by) if row["told_at"] is None]
    rows = [{**row, "heard_by": json.loads(row["heard_by"] or "[]")} for row in rows]
    return sorted(rows, key=itemgetter("at", "finding"))


def _rows(lake: Lake, **where: str) -> list[Row]:
    """Those with these values, in the order of their numbers."""
    return sorted(read_ops(lake, "alerts", where).to_pylist(), key=itemgetter("number"))


def mark_heard(lake: Lake, rows: Sequence[Row], notifier: str) -> None:
    """`notifier` has told of these rows of `untold`."""
    for row in rows:
        row["heard_by"].append(notifier)
    _mark(lake, rows, lambda row: {"heard_by": json.dumps(row["heard_by"])})


def mark_told(lake: Lake, rows: Sequence[Row]) -> None:
    """Everybody who is to hear of `rows` has."""
    _mark(lake, rows, lambda row: {"told_at": datetime.now(UTC)})


def _mark(lake: Lake, rows: Sequence[Row], columns: Callable[[Row], dict[str, Any]]) -> None:
    marked = [{name: row[name] for name in KEY} | columns(row) for row in rows]
    update_ops(lake, "alerts", KEY, marked)


@dataclass(frozen=True)
class Alert:
    """What a notifier's templates have as `alert`."""

    by: str  # the stream, or table_maintenance
    changes: tuple[Row, ...]  # rows of ops/alerts

    @property
    def opened(self) -> list[Row]:
        """The worst first."""
        rows = [row for row in self.changes if row["change"] == "opened"]
        return sorted(rows, key=lambda row: (TOLD.index(row["severity"]), row["finding"]))

    @property
    def closed(self) -> list[Row]:
        """What is over."""
        return [row for row in self.changes if row["change"] == "closed"]

    @property
    def severity(self) -> str:
        """Of the worst that opened: error or warning; ok when all there is to tell is over."""
        return next((str(row["severity"]) for row in self.opened), "ok")

    @property
    def title(self) -> str:
        """One line: user_counts: late_rows, skew; over: rss_bytes."""
        parts = [_names(self.opened), f"over: {_names(self.closed)}" if self.closed else ""]
        return f"{self.by}: {'; '.join(part for part in parts if part)}"

    @property
    def text(self) -> str:
        """Title, and a paragraph for each change: what it is, and what to do next."""
        opened = finding_lines(self.opened, self.by)
        return "\n".join([self.title, *opened, *_over(self.closed, self.by)])

    @property
    def html(self) -> str:
        """The text for a mail."""
        return f"<pre>{escape(self.text)}</pre>"


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(str(row["finding"]) for row in rows)


def _over(rows: Sequence[Row], by: str) -> Iterator[str]:
    for row in rows:
        about = "" if row["subject"] == by else f" of {row['subject']}"
        yield f"over: {row['finding']}{about}, since {row['opened_at']:%Y-%m-%d %H:%M} UTC"


# The daily look at all tables: of each that it could read it closes alerts as well.
BY = "table_maintenance"


def record_plan_alerts(
    lake: Lake, plans: Sequence[TablePlan], dag_run_id: str, now: datetime
) -> None:
    """Record what has opened and closed of the tables that `plans` are of; of one that is not there, nothing."""
    standings = [
        Standing(
            subject=plan.table.name,
            open=worst(map(asdict, plan.findings)),
            is_checked=plan.figures is not None,
        )
        for plan in plans
    ]
    record_changes(lake, BY, dag_run_id, standings=standings, now=now)
