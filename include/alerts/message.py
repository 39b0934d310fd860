"""An alert as people read it: what opened and closed in one Dag run, the worst first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from include.alerts.troubles import TOLD
from include.page.recorded import Row

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
