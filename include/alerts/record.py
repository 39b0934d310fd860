"""`ops/alerts`: what opened and closed, each once, who was told of it, and the message that people read.

Written under a transaction of its subject: whoever looks second, at once or again after a kill,
finds it recorded and records nothing. What was recorded and not told is told by the next look.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from operator import itemgetter
from typing import Any

from include.alerts.troubles import TOLD, Standing, worst
from include.care.plan_care import CaredTable, TablePlan
from include.lake.findings import Finding, record_findings
from include.lake.how_to_mend import how_to_mend
from include.lake.ops import append_ops, newest_transaction, read_ops, update_ops
from include.lake.paths import Lake
from include.observe.recorded import Row

KEY = ("subject", "number", "finding")


def record_changes(
    lake: Lake, by: str, dag_run_id: str | None, standings: Iterable[Standing], now: datetime
) -> None:
    """Record what has opened and closed since it was last looked at; `by` is who is to tell of it."""
    for standing in standings:
        while not _record(lake, standing, {"told_by": by, "dag_run_id": dag_run_id, "at": now}):
            pass  # another one was faster: what it recorded is no change any more


def _record(lake: Lake, standing: Standing, known: Mapping[str, Any]) -> bool:
    app_id = f"alerts/{standing.subject}"
    # Asked before the rows are read: what comes between is newer.
    number = 1 + newest_transaction(lake, "alerts", app_id)
    changes = _changes(standing, _rows(lake, subject=standing.subject))
    if not changes:
        return True
    given = {**known, "subject": standing.subject, "number": number}
    return append_ops(lake, "alerts", [{**given, **row} for row in changes], (app_id, number))


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


def still_told(lake: Lake, by: str) -> set[tuple[str, str]]:
    """Each subject and finding that `by` has told of, and not told to be over."""
    rows = _rows(lake, told_by=by)
    newest = {(row["subject"], row["finding"]): row["change"] for row in rows}
    return {told for told, change in newest.items() if change == "opened"}


def untold(lake: Lake, by: str) -> list[Row]:
    """What is still to be told, in order."""
    rows = [row for row in _rows(lake, told_by=by) if row["told_at"] is None]
    return sorted(rows, key=itemgetter("at", "finding"))


def _rows(lake: Lake, **where: str) -> list[Row]:
    """Those with these values, in the order of their numbers."""
    return sorted(read_ops(lake, "alerts", where).to_pylist(), key=itemgetter("number"))


def heard_by(row: Row) -> list[str]:
    """The notifiers that have told of it."""
    return json.loads(row["heard_by"] or "[]")  # type: ignore[no-any-return]


def mark_heard(lake: Lake, rows: Sequence[Row], notifier: str) -> list[Row]:
    """`rows` as they are now that `notifier` has told of them."""
    heard: list[Row] = [{**row, "heard_by": json.dumps([*heard_by(row), notifier])} for row in rows]
    columns = (*KEY, "heard_by")
    update_ops(lake, "alerts", KEY, [{name: row[name] for name in columns} for row in heard])
    return heard


def mark_told(lake: Lake, rows: Sequence[Row]) -> None:
    """Everybody who is to hear of `rows` has."""
    told = {"told_at": datetime.now(UTC)}
    update_ops(lake, "alerts", KEY, [{name: row[name] for name in KEY} | told for row in rows])


OPENED, CLOSED = "opened", "closed"


@dataclass(frozen=True)
class Alert:
    """What a notifier's templates have as `alert`."""

    by: str  # the stream, or table_maintenance
    changes: tuple[Row, ...]  # rows of ops/alerts

    @property
    def opened(self) -> list[Row]:
        """The worst first."""
        rows = [row for row in self.changes if row["change"] == OPENED]
        return sorted(rows, key=lambda row: (TOLD.index(row["severity"]), row["finding"]))

    @property
    def closed(self) -> list[Row]:
        """What is over."""
        return [row for row in self.changes if row["change"] == CLOSED]

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
        return "\n".join([self.title, *_lines(self.opened, self.by), *_over(self.closed, self.by)])

    @property
    def html(self) -> str:
        """The text for a mail."""
        return f"<pre>{escape(self.text)}</pre>"


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(str(row["finding"]) for row in rows)


def _lines(rows: Sequence[Row], by: str) -> Iterator[str]:
    for row in rows:
        count = "" if row["count"] is None else f", {row['count']:,}"
        yield f"- {_called(row, by)} ({row['severity']}{count}): {row['detail']}"
        if row["action"]:
            yield f"  Next: {row['action']}"


def _over(rows: Sequence[Row], by: str) -> Iterator[str]:
    for row in rows:
        yield f"- over: {_called(row, by)}, since {row['opened_at']:%Y-%m-%d %H:%M} UTC"


def _called(row: Row, by: str) -> str:
    return str(row["finding"]) if row["subject"] == by else f"{row['finding']} of {row['subject']}"


# The daily look at all tables: of each that it could read it closes alerts as well.
BY, UNREADABLE = "table_maintenance", "table_unreadable"


def record_plan_alerts(
    lake: Lake, plans: Sequence[TablePlan], dag_run_id: str, now: datetime
) -> None:
    """Record what has opened and closed of the tables that `plans` are of.

    A table that is not there is nothing to tell of, unless something was found in it before.
    """
    were_there = {name for name, finding in still_told(lake, BY) if finding != UNREADABLE}
    standings = []
    for plan in plans:
        found, is_gone = list(plan.findings), plan.is_missing and plan.table.name in were_there
        if is_gone:
            found.append(_gone(plan.table))
            record_findings(lake, None, plan.table.name, findings=found)
        standings.append(
            Standing(
                subject=plan.table.name,
                open=worst([asdict(finding) for finding in found]),
                is_checked=plan.figures is not None or (plan.is_missing and not is_gone),
            )
        )
    record_changes(lake, BY, dag_run_id, standings=standings, now=now)


def _gone(table: CaredTable) -> Finding:
    return Finding(
        finding=UNREADABLE,
        severity="warning",
        detail=f"{table.name} is gone: there is no table at {table.path} any more",
        action=str(how_to_mend(table.name)),
    )
