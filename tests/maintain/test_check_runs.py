"""A check against limits, and against what runs and earlier checks recorded."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from include.catalogue import FIGURES
from include.lake.ops import Measured, append_ops, read_ops, record_figures
from include.lake.paths import Lake
from include.maintain import check_checkpoint as module
from include.maintain.check_checkpoint import (
    CheckResult,
    check_checkpoint,
    newest_measured,
    record_check,
)
from include.settings import Limits
from tests.maintain.checked import STREAM, found, recorded_batch
from tests.stream.spark_checkpoint import SparkCheckpoint, write

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_sizes_and_findings_are_recorded_with_the_newest_run(lake, made):
    run = {"job": "run_stream", "subject": STREAM.name, "outcome": "failed"}
    append_ops(lake, "runs", [run | {"run_id": "old", "ended_at": NOW}])
    append_ops(lake, "runs", [run | {"run_id": "new", "ended_at": NOW + timedelta(hours=1)}])
    later = NOW + timedelta(hours=2)
    append_ops(
        lake, "runs", [run | {"run_id": "of source", "job": "ingest_source", "ended_at": later}]
    )
    result = check_checkpoint(lake, replace(STREAM, limits=Limits(checkpoint_files=3)))
    record_check(lake, result)
    assert set(read_ops(lake, "figures")["run_id"].to_pylist()) == {"new"}
    assert newest_measured(lake, STREAM.name) == result.size.measured
    files = [path for path in made.root.rglob("*") if path.is_file()]
    assert result.size.measured.files == len(files)
    assert result.size.measured.bytes == sum(path.stat().st_size for path in files)
    assert list(result.size.measured.partitions) == ["state/0/0", "state/0/1"]
    (finding,) = read_ops(lake, "findings").to_pylist()
    assert (finding["run_id"], finding["subject"]) == ("new", STREAM.name)
    assert (finding["finding"], finding["limit"]) == ("checkpoint_files", 3)


def test_growth_is_since_the_newest_check(lake, made):
    stream = replace(STREAM, limits=Limits(growth_bytes=0))
    assert found(check_checkpoint(lake, stream)) == {}  # nothing to compare with
    first = check_checkpoint(lake, stream)
    record_check(lake, first)
    assert found(check_checkpoint(lake, stream)) == {}
    made.batch()
    grown = check_checkpoint(lake, stream)
    assert found(grown) == {"growth_bytes": "warning"}
    assert grown.findings[0].figure == grown.size.measured.bytes - first.size.measured.bytes
    record_check(lake, grown)
    assert found(check_checkpoint(lake, stream)) == {}


def test_a_run_is_held_against_its_limits(lake, made):
    limits = Limits(late_rows=9, rss_bytes=100, pending_rows=7)
    run = {"run_id": "r", "job": "run_stream", "subject": STREAM.name, "ended_at": NOW}
    memory = {"jvm_rss_bytes": 60, "python_rss_bytes": 40}
    append_ops(lake, "runs", [run | memory | {"rows_late": 9}])
    recorded_batch(lake, 4, rows_pending=1000)
    recorded_batch(lake, 5, rows_pending=7)
    stream = replace(STREAM, limits=limits)
    assert found(check_checkpoint(lake, stream)) == {}
    later = run | {"ended_at": NOW + timedelta(hours=1)}
    append_ops(lake, "runs", [later | {"jvm_rss_bytes": 101, "rows_late": 10}])
    made.batch()
    recorded_batch(lake, 6, rows_pending=8)
    result = check_checkpoint(lake, stream)
    figures = {finding.finding: finding.figure for finding in result.findings}
    assert figures == {"pending_rows": 8, "many_late_rows": 10, "rss_bytes": 101}
    assert set(found(result).values()) == {"warning"}


NO_LIMITS = Limits(**dict.fromkeys(vars(Limits())))


def test_each_limit_is_compared(lake, made, monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(module, "limit_findings", lambda _, figures: asked.extend(figures) or [])
    checked(lake)
    assert {FIGURES[name].limit for name in asked} == set(vars(Limits()))


def checked(lake: Lake, **limits: float) -> CheckResult:
    return check_checkpoint(lake, replace(STREAM, limits=replace(NO_LIMITS, **limits)))


@pytest.mark.parametrize(
    "name",
    ["checkpoint_bytes", "checkpoint_files", "replay_versions", "skew", "uncommitted_batches"],
)
def test_a_figure_at_its_limit_is_fine_and_above_it_is_found(
    lake, made: SparkCheckpoint, name, monkeypatch
):
    monkeypatch.setattr(module, "SKEW_FLOOR_BYTES", 1)
    write(made.stores[0].folder / "SSTs" / "1-a.sst", bytes(100_000))
    made.plan()
    (above,) = checked(lake, **{name: 0}).findings
    assert above.figure
    assert checked(lake, **{name: above.figure}).findings == ()
    result = checked(lake, **{name: above.figure * 0.99})
    assert [found.finding for found in result.findings] == [name]
    is_compacted = name == "replay_versions"
    assert above.severity == ("info" if is_compacted else "warning")
    assert (result.why_not_compact is None) == is_compacted
    if name == "skew":
        monkeypatch.setattr(module, "SKEW_FLOOR_BYTES", 1_000_000)
        assert checked(lake, skew=0).findings == ()


def test_what_was_measured_while_the_machines_clock_was_ahead_is_not_the_newest(lake):
    now = datetime.now(UTC)
    ahead = Measured(now + timedelta(days=400), {"state/0/0": 9}, 1, 0)
    record_figures(lake, "user_counts", None, ahead)
    assert newest_measured(lake, "user_counts") is None
    today = ahead._replace(at=now)
    record_figures(lake, "user_counts", None, today)
    assert newest_measured(lake, "user_counts") == today
