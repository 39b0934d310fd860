"""`ops/alerts`: what opened and closed, each once, who was told of it, and the message that people read.

Written under a lease of its subject: whoever looks second, at once or again after a kill, finds it
recorded and records nothing. What was recorded and not told is told by the next look.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from operator import itemgetter
from typing import Any

from include.alerts.troubles import TOLD, Standing, worst
from include.care.plan_care import TablePlan
from include.lake.findings import finding_lines
from include.lake.lease import hold_lease
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake
from include.observe.recorded import Row

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
