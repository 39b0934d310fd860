"""Prometheus' text: each figure is that of the overview."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from include.lake.ops import append_ops
from include.observe.stream_line import metrics_text, read_overview
from tests.page.history import HOUR, NOW, streams_like, write_history

MINUTE = HOUR / 60
STREAMS = streams_like(3)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    """The samples of a text, as Prometheus reads it."""
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    found = {(each.name, frozenset(each.labels.items())): each.value for each in samples}
    assert len(found) == len(samples)
    return found


def at(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"stateful_lake_{name}", frozenset(labels.items())))


def test_figures_are_those_of_the_overview(lake):
    write_history(lake, STREAMS, 10)
    overview = read_overview(lake, STREAMS, NOW)
    samples = parsed(metrics_text(overview))
    assert at(samples, "up") == 1
    for line in overview.lines:
        own = {"stream": line.stream}
        assert line.until_lag is not None
        assert at(samples, "until_lag_seconds", **own) == line.until_lag.total_seconds()
        assert at(samples, "rows_30d", kind="late", **own) == line.rows["late"]
        assert at(samples, "findings", severity="warning", **own) == line.findings["warning"]
        assert at(samples, "dates_not_right", why="late", **own) == 0
        for name in ("state_keys", "state_bytes", "checkpoint_bytes", "run_seconds"):
            assert at(samples, name, **own) == getattr(line, name)


def test_an_ingestion_that_fails_is_a_failed_run_of_its_sources_streams_until_one_comes(lake):
    """Their runs are not begun then, and none is recorded."""

    def failed() -> tuple[float | None, bool]:
        overview = read_overview(lake, STREAMS, NOW + HOUR)
        is_known = "no broker" in (overview.lines[0].last_error or "")
        return at(parsed(metrics_text(overview)), "run_failed", **own), is_known

    def ran(job: str, subject: str, minutes: int, **more: str) -> None:
        at = NOW + minutes * MINUTE
        row = {"run_id": f"{job}/{minutes}", "job": job, "subject": subject, "started_at": at}
        append_ops(lake, "runs", [row | {"ended_at": at + MINUTE, "outcome": "succeeded"} | more])

    own = {"stream": "stream_000"}
    bad = {"outcome": "failed", "error": "ConnectorError: no broker answers"}
    ran("ingest_source", "signals", 0, **bad)
    assert failed() == (1, True)
    ran("ingest_source", "signals", 2)
    ran("run_stream", "stream_000", 3)
    assert failed() == (0, False)
    ran("ingest_source", "signals", 5, **bad)
    assert failed() == (1, True)
    ran("run_stream", "stream_000", 7)
    assert failed() == (0, False)


def test_a_folder_that_is_empty_has_promises_and_nothing_that_was_never_recorded(lake):
    """Also where a lake was to be mounted: by this a rule tells them from a table that was there."""
    samples = parsed(metrics_text(read_overview(lake, STREAMS, NOW)))
    assert at(samples, "up") == 1
    assert at(samples, "until_lag_promised_seconds", stream="stream_000") is not None
    for name in ("until_lag_seconds", "state_keys", "run_failed"):
        assert at(samples, name, stream="stream_000") is None


def test_the_page_of_the_docs_has_each_metric(lake):
    write_history(lake, STREAMS, 3)
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    table = page[page.index("| `stateful_lake_...`") :].partition("\n\n")[0]
    written = re.findall(r"`([a-z0-9_]+)`", re.sub(r"^\| ([^|]*)\|.*$", r"\1", table, flags=re.M))
    given = {name for name, _ in parsed(metrics_text(read_overview(lake, STREAMS, NOW)))}
    assert {f"stateful_lake_{name}" for name in written} == given
