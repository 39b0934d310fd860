"""Alerts: the findings that have opened and closed since the last notification, and its text.

`include/airflow/alerts.py` stores what people were notified of: for each subject of `ops/findings`
when it was read, and the severities of the findings that were open then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from typing import Any

from include.catalogue import FINDINGS
from include.lake.ops import Finding, finding_lines
from include.lake.paths import Lake
from include.maintain.table_maintenance import TablePlan
from include.observe.stream_line import INGEST, RUN, WINDOW_DAYS, Recorded, Row, StreamLine, line_of
from include.settings import Stream
from include.text_table import first_names

NOTIFIED = ("error", "warning")  # the severities that people are notified of, the worst first


@dataclass(frozen=True)
class Look:
    """The open findings of one subject, and all that were found lately, closed ones too."""

    subject: str
    open: Sequence[Row]
    found: Sequence[Row] = ()
    is_whole: bool = True  # False: a finding that is missing may be open all the same

    def notified(self, before: Mapping[str, Any], at: datetime) -> dict[str, Any]:
        """The state to store once people were notified of this look, as plain JSON."""
        known = {} if self.is_whole else before.get("open", {})
        return {"at": at.isoformat(), "open": known | self._severities()}

    def news(self, before: Mapping[str, Any]) -> tuple[list[Row], list[Row]]:
        """Return the rows of findings that opened or got worse, and of those that closed."""
        known, now, at = before.get("open", {}), self._severities(), before.get("at")
        # "error" comes before "warning".
        worse = {name for name, severity in now.items() if severity < known.get(name, "z")}
        passed = {
            (row["finding"], row["detail"]): row
            for row in self.found
            if at is not None and row["found_at"] > datetime.fromisoformat(at)
            if row["severity"] in NOTIFIED and row["finding"] not in known.keys() | now.keys()
        }
        closed = {name for name, _ in passed}
        closed |= known.keys() - now.keys() if self.is_whole else set()
        return (
            [*(row for row in self.open if row["finding"] in worse), *passed.values()],
            [{"subject": self.subject, "finding": name} for name in sorted(closed)],
        )

    def _severities(self) -> dict[str, str]:
        """The worst severity of each open finding that people are notified of."""
        rows = sorted(self.open, key=lambda row: row["severity"], reverse=True)
        return {row["finding"]: row["severity"] for row in rows if row["severity"] in NOTIFIED}


@dataclass(frozen=True)
class Alert:
    """The `alert` of a notifier's templates."""

    by: str  # the stream, or table_maintenance
    opened: Sequence[Row]  # rows of ops/findings
    closed: Sequence[Row] = ()  # subject and finding

    @property
    def severity(self) -> str:
        """The worst that opened: error or warning; ok when findings have only closed."""
        return min((str(row["severity"]) for row in self.opened), default="ok")

    @property
    def title(self) -> str:
        """One line: user_counts: late_rows, skew; over: rss_bytes."""
        opened, closed = (
            ", ".join(dict.fromkeys(row["finding"] for row in rows))
            for rows in (self.opened, self.closed)
        )
        return f"{self.by}: {'; '.join(filter(None, (opened, closed and f'over: {closed}')))}"

    @property
    def text(self) -> str:
        """The title, and a paragraph for each change: what was found, and what to do next."""
        worst_first = sorted(self.opened, key=lambda row: str(row["severity"]))
        over = (f"over: {row['finding']} of {row['subject']}" for row in self.closed)
        return "\n".join([self.title, *finding_lines(worst_first, self.by), *over])

    @property
    def html(self) -> str:
        """The text as HTML, for a mail."""
        return f"<pre>{escape(self.text)}</pre>"


def alert_of(
    by: str, looks: Sequence[Look], known: Mapping[str, Mapping[str, Any]]
) -> Alert | None:
    """Return the alert on what has changed since `known`, by subject; None if nothing has."""
    news = [look.news(known[look.subject]) for look in looks]
    opened, closed = ([row for each in news for row in each[n]] for n in (0, 1))
    return Alert(by, opened, closed) if opened or closed else None


def look_at(lake: Lake, stream: Stream, now: datetime, failed: Sequence[str]) -> list[Look]:
    """Look at a stream and at its source; `failed` are the failed tasks of this Dag run."""
    recorded = Recorded(lake, now - timedelta(days=WINDOW_DAYS), stream)
    line = line_of(recorded, stream, now)
    own = filter(None, (_behind(stream, line), _failed(recorded, stream, failed)))
    rows = [*(_row(stream.name, finding) for finding in own), *line.found]
    return [
        Look(
            subject,
            [row for row in rows if row["subject"] == subject],
            [row for row in recorded.findings.get(subject, ()) if row["found_at"] <= now],
        )
        for subject in dict.fromkeys((stream.name, stream.source))
    ]


def behind_alert(lake: Lake, stream: Stream, now: datetime) -> Alert | None:
    """The alert that the table is behind `fresh_within`; None where it is not."""
    recorded = Recorded(lake, now - timedelta(days=WINDOW_DAYS), stream)
    found = _behind(stream, line_of(recorded, stream, now))
    return None if found is None else Alert(stream.name, [_row(stream.name, found)])


def _behind(stream: Stream, line: StreamLine) -> Finding | None:
    if stream.fresh_within is None or not line.is_behind:
        return None
    said = f"tables/{stream.name} is complete until {line.until:%F %T} UTC"
    said += f": fresh_within={stream.fresh_within}"
    return FINDINGS["behind_promise"].found(stream.name, said)


def _failed(recorded: Recorded, stream: Stream, tasks: Sequence[str]) -> Finding | None:
    if not tasks:
        return None
    runs = (recorded.newest.get(of) for of in ((INGEST, stream.source), (RUN, stream.name)))
    errors = [run["error"] for run in runs if run and run["outcome"] == "failed"]
    detail = "; ".join([f"failed: {first_names(sorted(tasks))}", *errors])
    return FINDINGS["run_failed"].found(stream.name, detail)


def looks_at_tables(plans: Sequence[TablePlan]) -> list[Look]:
    """The findings of the daily maintenance by table; a missing table may still have findings."""
    looks = []
    for plan in plans:
        rows = [_row(plan.table.name, finding) for finding in plan.findings]
        looks.append(Look(plan.table.name, rows, is_whole=plan.figures is not None))
    return looks


def _row(subject: str, finding: Finding) -> Row:
    names = ("finding", "severity", "count", "detail", "action")
    return {"subject": subject} | {name: getattr(finding, name) for name in names}
