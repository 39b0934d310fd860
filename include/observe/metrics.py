"""The figures of all streams in Prometheus' text format: gauges, as the lake has them now."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from include.catalogue import METRICS, Figure
from include.observe.stream_line import Overview, StreamLine

PREFIX = "stateful_lake"
ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def metrics_text(overview: Overview) -> str:
    """All metrics of a lake. Of one that cannot be read there is only `up`, which is 0."""
    up = f"{PREFIX}_up {float(overview.reason is None)}"
    texts = [_text("up", "Whether the lake could be read", [up])]
    texts += (
        _text(name, figure.help, list(_samples(name, figure, overview.lines)))
        for name, figure in METRICS.items()
    )
    return "".join(texts)


def _text(name: str, help_: str, samples: Sequence[str]) -> str:
    """The lines of a metric; one without a sample has none."""
    head = [f"# HELP {PREFIX}_{name} {help_}", f"# TYPE {PREFIX}_{name} gauge"]
    return "\n".join([*head, *samples, ""]) if samples else ""


def _samples(name: str, figure: Figure, lines: Sequence[StreamLine]) -> Iterator[str]:
    """What was never recorded has none."""
    for line in lines:
        value = getattr(line, figure.name)
        kinds = value if figure.label else {"": value}
        for kind, of_kind in (kinds or {}).items():
            if of_kind is not None:
                labels = {"stream": line.stream} | ({figure.label: kind} if kind else {})
                yield f"{PREFIX}_{name}{_labels(labels)} {_number(of_kind)!r}"


def _number(value: datetime | timedelta | float) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{value.translate(ESCAPED)}"' for name, value in labels.items())
    return f"{{{inner}}}"
