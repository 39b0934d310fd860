"""The overview in Prometheus' text format: gauges, as the lake has them when it is asked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from include.page.overview import Overview, StreamLine

PREFIX = "stateful_lake"
ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Metric:
    """A metric without its prefix, and its samples."""

    name: str
    help: str
    samples: tuple[Sample, ...]

    def text(self) -> str:
        """Its lines; a metric without a sample has none."""
        if not self.samples:
            return ""
        name = f"{PREFIX}_{self.name}"
        lines = [f"# HELP {name} {self.help}", f"# TYPE {name} gauge"]
        lines += [f"{name}{_labels(labels)} {value!r}" for labels, value in self.samples]
        return "\n".join(lines) + "\n"


def metrics_text(overview: Overview) -> str:
    """All metrics of a lake. Of one that cannot be read there is only `up`, which is 0."""
    up = Metric(
        "up", "Whether the lake could be read", (({}, float(overview.state != "unreadable")),)
    )
    return "".join(metric.text() for metric in (up, *_metrics(overview.lines)))


def _metrics(lines: tuple[StreamLine, ...]) -> Iterator[Metric]:
    def of(name: str, help_: str, values: Mapping[str, float | None]) -> Metric:
        known = ((stream, value) for stream, value in values.items() if value is not None)
        return Metric(name, help_, tuple(({"stream": s}, float(v)) for s, v in known))

    def each(name: str) -> dict[str, float | None]:
        return {line.stream: getattr(line, name) for line in lines}

    lag = {line.stream: None if line.lag is None else line.lag.total_seconds() for line in lines}
    yield of("until_lag_seconds", "From the instant a table is complete until to now", lag)
    promised: dict[str, float | None] = {s.stream: s.promised.total_seconds() for s in lines}
    yield of(
        "until_lag_promised_seconds",
        "fresh_within, or two ticks of the schedule and the delay",
        promised,
    )
    until = {line.stream: _seconds(line.until) for line in lines}
    yield of("until_timestamp_seconds", "The instant a table is complete until", until)
    yield _rows(lines)
    yield of("rows_pending", "Rows not yet settled after the newest run", each("rows_pending"))
    yield of("state_keys", "Keys of the newest savepoint", each("keys"))
    yield of("state_bytes", "Bytes of the state as last measured", each("state_bytes"))
    yield of(
        "checkpoint_bytes", "Bytes of the checkpoint as last measured", each("checkpoint_bytes")
    )
    yield of("run_seconds", "How long the newest run took", each("last_seconds"))
    ended = {line.stream: _seconds(line.last_run) for line in lines}
    yield of("run_end_timestamp_seconds", "When the newest run ended", ended)
    failed = {
        line.stream: None if line.last_run is None else float(line.last_outcome == "failed")
        for line in lines
    }
    yield of("run_failed", "Whether the newest run failed", failed)
    yield _findings(lines)
    yield _days(lines)


def _rows(lines: tuple[StreamLine, ...]) -> Metric:
    kinds = {"in": "rows_in", "late": "rows_late", "quarantined": "rows_quarantined"}
    samples = (
        ({"stream": line.stream, "kind": kind}, float(getattr(line, name)))
        for line in lines
        for kind, name in kinds.items()
    )
    help_ = "Rows of the last 30 days, by kind; quarantined are those of the stream's source"
    return Metric("rows_30d", help_, tuple(samples))


def _findings(lines: tuple[StreamLine, ...]) -> Metric:
    samples = (
        ({"stream": line.stream, "severity": severity}, float(count))
        for line in lines
        for severity, count in line.findings.items()
    )
    return Metric("findings", "Open findings, by severity", tuple(samples))


def _days(lines: tuple[StreamLine, ...]) -> Metric:
    wrong = ("late", "code", "unproved")
    samples = (
        ({"stream": line.stream, "why": why}, float(sum(day.status == why for day in line.days)))
        for line in lines
        if line.days
        for why in wrong
    )
    return Metric("dates_not_right", "Of the last 30 days, those not right, by why", tuple(samples))


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{value.translate(ESCAPED)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""
