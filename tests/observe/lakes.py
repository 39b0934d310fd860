"""Lakes of one stream for alerts: its runs, their checks, and what was found, written into `ops`."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from include.lake.ops import Measured, append_ops, record_figures
from include.lake.paths import Lake
from include.observe.alerts import Alert, alert_of, look_at
from include.registry import stream_named
from include.settings import Stream

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
STREAM = stream_named("device_signals")


class Report:
    """A lake, hour by hour: what happened in each, and what people were told at its end."""

    def __init__(self, lake: Lake, stream: Stream = STREAM) -> None:
        self.lake, self.stream, self.hour = lake, stream, 0
        self.known: dict[str, Any] = {}
        self.alert: Alert | None = None

    @property
    def now(self) -> datetime:
        return NOON + self.hour * HOUR

    def run(
        self,
        *found: tuple[str, str],
        outcome: str = "succeeded",
        is_checked: bool = True,
        until: datetime | None = None,
    ) -> None:
        """A run of the stream and of its source's ingestion, and what they and the check found."""
        self.ingest(outcome)
        run_id = f"{self.stream.name}/{self.hour}"
        row = self._run("run_stream", self.stream.name, outcome)
        done = until or self.now - timedelta(minutes=20)
        append_ops(self.lake, "runs", [row | {"until": done if outcome == "succeeded" else None}])
        if is_checked:
            measured = Measured(self.now, {"offsets": 1}, 1, 0)
            record_figures(self.lake, self.stream.name, None, measured)
        self.find(found, run_id)

    def ingest(self, outcome: str = "succeeded") -> None:
        append_ops(self.lake, "runs", [self._run("ingest_source", self.stream.source, outcome)])

    def find(
        self,
        found: Iterable[tuple[str, str]],
        run_id: str | None = None,
        subject: str | None = None,
    ) -> None:
        known = {"subject": subject or self.stream.name, "run_id": run_id, "found_at": self.now}
        rows = [
            known | {"finding": name, "severity": severity, "detail": name, "action": "do it"}
            for name, severity in found
        ]
        if rows:
            append_ops(self.lake, "findings", rows)

    def _run(self, job: str, subject: str, outcome: str) -> dict[str, Any]:
        return {
            "run_id": f"{subject}/{self.hour}",
            "job": job,
            "subject": subject,
            "started_at": self.now - timedelta(minutes=2),
            "ended_at": self.now - timedelta(minutes=1),
            "outcome": outcome,
            "error": None if outcome == "succeeded" else "it broke",
        }

    def look(self, failed: Sequence[str] = ()) -> list[tuple[str, str, str]]:
        """The end of the hour: what opened and closed in it, as (change, subject, finding)."""
        looks = look_at(self.lake, self.stream, self.now, failed)
        known = {look.subject: self.known.get(look.subject, {}) for look in looks}
        self.alert = alert_of(self.stream.name, looks, known)
        known_now = {look.subject: look.notified(known[look.subject], self.now) for look in looks}
        self.known |= json.loads(json.dumps(known_now))
        self.hour += 1
        rows = [] if self.alert is None else [("opened", row) for row in self.alert.opened]
        rows += [] if self.alert is None else [("closed", row) for row in self.alert.closed]
        return sorted((change, row["subject"], row["finding"]) for change, row in rows)
