"""The tables of savepoints are cared for like others; rows that belong to none go: no JVM."""

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from include.care.plan_care import (
    TablePlan,
    plan_table_care,
)
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.limits import TABLE_CARE, TableCare
from include.savepoints.choose_base import STRUCK_OFF_KEPT

NOW = datetime(2026, 3, 10, 3, 20, tzinfo=UTC)
CARE = replace(TABLE_CARE, min_small_files=3, min_garbage_files=2)
SAVEPOINTS = "savepoints/user_counts"


def plan_of(lake: Lake, care: TableCare = CARE, now: datetime = NOW) -> TablePlan:
    (plan,) = (plan for plan in plan_table_care(lake, care, now) if plan.table.name == SAVEPOINTS)
    return plan


def write_savepoints(lake: Lake, *names: str, table: str = "user_counts", files: int = 3) -> None:
    """Rows of these savepoints, one file with each of `files` commits."""
    rows = pa.table({"savepoint_id": list(names), "key": ["k"] * len(names)})
    for _ in range(files):
        write_deltalake(lake.savepoints(table), rows, mode="append", partition_by=["savepoint_id"])


def record(lake: Lake, *names: str) -> None:
    for name in names:
        row = {"savepoint_id": name, "stream": "user_counts"}
        append_ops(lake, "savepoints", [row | {"until": NOW, "created_at": NOW}])


def test_savepoints_are_optimized_one_by_one(lake):
    write_savepoints(lake, "a", "b")
    write_savepoints(lake, "c", files=2)
    record(lake, "a", "b", "c")
    plan = plan_of(lake)
    assert sorted(str(part.value) for part in plan.optimize) == ["a", "b"]
    found = plan_of(lake, replace(CARE, table_bytes=5)).findings
    assert [each.finding for each in found] == ["optimize_above_budget"] * 2


def test_deleted_savepoints_are_vacuumed_and_their_rows_then_gone(lake):
    write_savepoints(lake, "a", "b")
    record(lake, "a")
    table = DeltaTable(lake.savepoints("user_counts"))
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    table.delete("savepoint_id = 'b'")
    plan = plan_of(lake)
    assert plan.vacuum
    assert (plan.figures and plan.figures.garbage_files) == 3


def test_left_over_rows_are_told_and_are_care_enough(lake):
    write_savepoints(lake, "a", "cut", files=1)
    record(lake, "a")
    plan = plan_of(lake, now=datetime.now(UTC) + STRUCK_OFF_KEPT)
    assert (plan.left_over, plan.optimize, plan.vacuum) == (("cut",), (), False)
    assert plan.needs_care
