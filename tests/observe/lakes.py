"""Lakes of one stream for alerts: its runs, their checks, and what was found, written into `ops`."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.observe.alerts import record_changes, standings, untold
from include.registry import stream_named
from include.settings import Stream

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
STREAM = stream_named("device_signals")


class Told:
    """A lake, hour by hour: what happened in each, and what people were told at its end."""

    def __init__(self, lake: Lake, stream: Stream = STREAM) -> None:
        self.lake, self.stream, self.hour = lake, stream, 0

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
            size = {"stream": self.stream.name, "generation": 1, "part": "offsets", "bytes": 1}
            append_ops(self.lake, "checkpoint_sizes", [size | {"measured_at": self.now}])
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

    def look(self, failed: list[str] | None = None) -> list[tuple[str, str, str]]:
        """The end of the hour: what opened and closed in it, as (change, subject, finding)."""
        before = {self._key(row) for row in untold(self.lake, self.stream.name)}
        names = [self.stream.name, "threshold_alerts"]
        found = standings(self.lake, self.stream, self.now, names, failed)
        dag_run = f"scheduled__{self.hour}"
        record_changes(self.lake, self.stream.name, dag_run, found, self.now)
        rows = [r for r in untold(self.lake, self.stream.name) if self._key(r) not in before]
        self.hour += 1
        return sorted((row["change"], row["subject"], row["finding"]) for row in rows)

    @staticmethod
    def _key(row: Any) -> tuple[Any, ...]:
        return row["subject"], row["number"], row["finding"]
