"""Plans of maintenance for real tables, without a JVM."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from include.lake.delta_log import open_table, read_actions
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.maintain import table_maintenance
from include.maintain.table_maintenance import (
    TablePlan,
    plan_table_maintenance,
    record_plan_findings,
)
from include.settings import TABLE_MAINTENANCE
from tests.refused import commands_in
from tests.stream.bronze_lake import (
    FIRST_DAY,
    SOURCE,
    append,
    backdate,
    bronze,
    rebuild,
    set_properties,
    write_position,
)

NOW = datetime(2026, 3, 10, 3, 20, tzinfo=UTC)
LIMITS = replace(TABLE_MAINTENANCE, min_small_files=3, min_garbage_files=2)


def plan_of(lake: Lake, name: str = f"bronze/{SOURCE}", limits=LIMITS, now=NOW) -> TablePlan:
    (plan,) = (
        plan for plan in plan_table_maintenance(lake, limits, now) if plan.table.name == name
    )
    return plan


def sizes(lake: Lake) -> dict[str, int]:
    adds = pa.table(bronze(lake).get_add_actions())
    return dict(zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True))


def test_a_table_with_enough_small_files_beside_others_is_optimized(lake):
    append(lake, days=2)
    append(lake, days=1)  # the first day has two files now; the second's has none beside it
    assert not plan_of(lake).needs_maintenance
    append(lake, days=1)
    plan = plan_of(lake)
    first_day = [size for path, size in sizes(lake).items() if str(FIRST_DAY) in path]
    assert plan.optimize
    assert plan.figures is not None
    assert plan.figures.small == (3, sum(first_day))


def with_garbage(lake: Lake) -> datetime:
    """Bronze of three files that were replaced eight days before the instant returned."""
    set_at = datetime.now(UTC)
    for _ in range(3):
        append(lake)
    bronze(lake).optimize.compact()
    backdate(lake, 3, set_at - timedelta(days=8))
    old = (set_at - timedelta(days=9)).timestamp()
    for file in Path(lake.bronze(SOURCE)).rglob("*.parquet"):
        os.utime(file, (old, old))
    return set_at


def test_what_no_version_needs_any_more_is_vacuumed(lake):
    now = with_garbage(lake)
    plan = plan_of(lake, now=now)
    assert (plan.vacuum, plan.optimize) == (True, False)
    assert plan.figures is not None
    disk = sum(file.stat().st_size for file in Path(lake.bronze(SOURCE)).rglob("*.parquet"))
    assert plan.figures.garbage == (3, disk - sum(sizes(lake).values()))
    assert not plan_of(lake, now=now, limits=replace(LIMITS, min_garbage_files=4)).vacuum
    assert plan_of(
        lake, now=now, limits=replace(LIMITS, min_garbage_files=4, min_garbage_bytes=1)
    ).vacuum


def test_a_table_keeps_it_as_long_as_its_property_says(lake):
    now = with_garbage(lake)
    set_properties(lake, deletedFileRetentionDuration="interval 30 days")
    assert not plan_of(lake, now=now).vacuum


def test_a_stream_that_is_behind_holds_the_vacuum_back_and_is_named(lake):
    now = with_garbage(lake)
    backdate(lake, 1, now - timedelta(days=8))
    write_position(lake, "user_counts", next_version=1)
    plan = plan_of(lake, now=now)
    assert not plan.needs_maintenance
    (found,) = plan.findings
    assert "user_counts" in found.detail
    assert (found.finding, found.count) == ("vacuum_refused", 3)
    record_plan_findings(lake, [plan])
    (row,) = read_ops(lake, "findings").to_pylist()
    assert (row["subject"], row["finding"]) == (f"bronze/{SOURCE}", "vacuum_refused")
    write_position(lake, "user_counts", next_version=3, batch=1)
    assert plan_of(lake, now=now).vacuum


def test_bronze_is_not_vacuumed_under_a_rebuild_that_has_not_begun_to_read(lake):
    """It reads the files of the commits after the version that it has replayed."""
    now = with_garbage(lake)
    rebuild(lake, "user_counts", 1)
    backdate(lake, 2, now - timedelta(days=8))
    added = [action["add"]["path"] for action in read_actions(lake, lake.bronze(SOURCE), 2)[1:]]
    assert set(added) <= set(bronze(lake).vacuum(dry_run=True, full=True))
    plan = plan_of(lake, now=now)
    assert (plan.needs_maintenance, "user_counts" in plan.findings[0].detail) == (False, True)
    # Nothing is left to read: what was replayed are rows of the newest version.
    rebuild(lake, "user_counts", 3, generation=3)
    assert plan_of(lake, now=now).vacuum


@pytest.mark.parametrize("broken", ["position", "retention"])
def test_without_knowing_what_readers_need_nothing_is_deleted(lake, broken):
    now = with_garbage(lake)
    write_position(lake, "user_counts", next_version=3)
    if broken == "position":
        Path(lake.checkpoint("user_counts", 1), "offsets", "0").write_text("v1\n")
    else:
        backdate(lake, 3, now - timedelta(days=8))
        log = Path(lake.bronze(SOURCE), "_delta_log", f"{0:020}.json")
        text = log.read_text()
        wrong = '"configuration":{"delta.logRetentionDuration":"for ever"}'
        assert '"configuration":{}' in text
        log.write_text(text.replace('"configuration":{}', wrong))
    plan = plan_of(lake, now=now)
    assert not plan.vacuum
    assert plan.findings[0].finding == "vacuum_refused"


@pytest.mark.parametrize("kind", [DeltaError, OSError])
def test_a_table_that_the_machine_refuses_keeps_nobody_waiting_and_is_not_called_damaged(
    lake, monkeypatch, kind
):
    append(lake, days=1)
    write_deltalake(lake.bronze("signals"), pa.table({"n": [1]}))

    def opened(path: str) -> DeltaTable:
        if path == lake.bronze("signals"):
            raise kind("Unable to open file a: Permission denied (os error 13)")
        return open_table(path)

    monkeypatch.setattr(table_maintenance, "open_table", opened)
    (found,) = plan_of(lake, "bronze/signals").findings
    assert (found.finding, found.severity) == ("table_unreadable", "warning")
    assert lake.bronze("signals") in found.detail
    assert plan_of(lake).figures


def cut_off(path: Path) -> None:
    path.write_bytes(b"PAR1")


@pytest.mark.parametrize("damage", [Path.unlink, cut_off])
def test_a_file_that_is_lost_or_cut_off_is_an_error_though_all_streams_have_read_it(lake, damage):
    append(lake, days=2)
    assert not plan_of(lake).findings
    name = next(iter(sizes(lake)))
    damage(Path(lake.bronze(SOURCE), name))
    (found,) = plan_of(lake).findings
    assert (found.finding, found.severity, found.count) == ("files_lost", "error", 1)
    assert name in found.detail
    assert commands_in(found.action) == [f"ingest {SOURCE} --from-scratch --apply"]
