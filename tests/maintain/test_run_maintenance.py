"""`./stateful maintain`: what it says, and that it starts a JVM only for what needs one."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from include.cli.__main__ import main
from include.lake.ops import append_ops, read_ops
from include.lake.paths import Lake
from include.maintain import table_maintenance
from include.settings import TABLE_MAINTENANCE

MANY = TABLE_MAINTENANCE.min_small_files


@pytest.fixture
def jobs(monkeypatch):
    """The jobs that are started, in place of starting them; each fails."""
    started: list[tuple[str, list[str]]] = []

    def start(job, args):
        started.append((job, args))
        return 7

    monkeypatch.setattr(table_maintenance, "run_job", start)
    return started


def fill_ops(lake: Lake) -> None:
    for number in range(MANY):
        append_ops(lake, "runs", [{"run_id": f"r{number}"}])


def fill_quarantine(lake: Lake) -> None:
    for _ in range(MANY):
        write_deltalake(lake.quarantine("signals"), pa.table({"n": [1]}), mode="append")


def test_a_lake_that_needs_nothing_starts_no_jvm_and_is_not_written(lake, jobs):
    assert main(["maintain", "--lake", lake.root]) == 0
    assert jobs == []
    assert not lake.is_delta_table(lake.ops("findings"))


def test_one_job_gets_all_tables_that_need_it_and_its_failure_is_in_the_exit_code(
    lake, jobs, caplog
):
    fill_ops(lake)
    fill_quarantine(lake)
    write_deltalake(lake.bronze("signals"), pa.table({"n": [1]}))
    assert main(["maintain", "--lake", lake.root]) == 1
    args = ["--tables", "quarantine/signals", "--lake", lake.root]
    assert jobs == [("maintain_table", args)]
    assert len(DeltaTable(lake.ops("runs")).file_uris()) == 1
    assert read_ops(lake, "runs").num_rows == MANY
    assert [each.name for each in caplog.records if "ops/runs" in each.getMessage()]


def test_a_dry_run_shows_the_plan_and_changes_nothing(lake, capsys, jobs):
    fill_ops(lake)
    fill_quarantine(lake)
    versions = [
        DeltaTable(path).version() for path in (lake.ops("runs"), lake.quarantine("signals"))
    ]
    assert main(["maintain", "--lake", lake.root, "--dry-run"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {row[0] for row in rows if "optimize" in row} == {"ops/runs:", "quarantine/signals:"}
    assert jobs == []
    after = [DeltaTable(path).version() for path in (lake.ops("runs"), lake.quarantine("signals"))]
    assert after == versions
