"""A table that is not what our commits have made it is noticed, and no other is."""

import json
import re
import shutil
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given
from hypothesis import strategies as st

from include.lake.delta_log import read_actions
from include.lake.paths import Lake
from include.lake.table_seal import (
    Actions,
    changed_since,
    read_seal,
    rows_by_date,
    seal,
    what_changed,
)
from tests.examples import examples
from tests.open_files import no_more_files

TABLE = "tables/counts"
FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)
OURS = '{"writer": "ours"}'


@pytest.fixture
def path(lake: Lake) -> Path:
    """A table of three commits, sealed after the last."""
    for day in (FIRST, SECOND, SECOND):
        append(lake, day, 2)
    seal(lake, TABLE)
    return Path(lake.root, TABLE)


def append(lake: Lake, day: date | None, rows: int, mark: str | None = None) -> None:
    data = pa.table({"day": pa.array([day] * rows, pa.date32()), "n": list(range(rows))})
    properties = CommitProperties(custom_metadata={"userMetadata": mark}) if mark else None
    write_deltalake(
        f"{lake.root}/{TABLE}",
        data,
        mode="append",
        partition_by=["day"],
        commit_properties=properties,
    )


def commit_file(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020}.json"


def dates_in(change: str | None) -> set[str]:
    """The dates that a change is told to have other rows of."""
    return set(re.findall(r"on (\S+) \d", str(change)))


def is_marked(info: Mapping[str, Any], actions: Actions) -> bool:
    return bool(info.get("userMetadata") == OURS)


def test_a_table_that_was_never_sealed_is_believed(lake: Lake):
    assert what_changed(lake, TABLE) is None
    append(lake, FIRST, 2)
    assert what_changed(lake, TABLE) is None


def test_an_unpartitioned_table_has_one_count_and_an_empty_one_none(lake: Lake):
    path = f"{lake.root}/{TABLE}"
    DeltaTable.create(path, schema=pa.schema([("n", pa.int64())]))
    assert rows_by_date(lake, TABLE) == {}
    seal(lake, TABLE)
    write_deltalake(path, pa.table({"n": [1, 2]}), mode="append")
    assert rows_by_date(lake, TABLE) == {"": 2}
    assert what_changed(lake, TABLE) is not None


def test_rows_are_counted_where_the_log_has_no_statistics(lake: Lake, path: Path):
    log = commit_file(path, 2)
    actions = [json.loads(line) for line in log.read_text().split("\n") if line]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = None
    log.write_text("\n".join(map(json.dumps, actions)))
    assert rows_by_date(lake, TABLE) == {"2026-03-01": 2, "2026-03-02": 4}
    assert what_changed(lake, TABLE) is None


def test_a_table_that_is_gone_or_another_is_noticed(lake: Lake, path: Path):
    away = path.rename(path.with_name("away"))
    assert what_changed(lake, TABLE) is not None
    for day in (FIRST, SECOND, SECOND):
        append(lake, day, 2)
    assert what_changed(lake, TABLE) is not None
    shutil.rmtree(path)
    away.rename(path)
    assert what_changed(lake, TABLE) is None


def test_a_machine_without_files_to_open_is_no_change_of_the_table(lake: Lake, path: Path):
    sealed = read_seal(lake, TABLE)
    with no_more_files(), pytest.raises((DeltaError, OSError)):
        changed_since(lake, sealed, is_marked)


def test_a_cut_commit_is_noticed(lake: Lake, path: Path):
    log = commit_file(path, 2)
    log.write_text(log.read_text()[:-20])
    assert what_changed(lake, TABLE) is not None


def test_a_deleted_newest_commit_is_noticed(lake: Lake, path: Path):
    commit_file(path, 2).unlink()
    assert what_changed(lake, TABLE) is not None


def test_a_copy_of_two_versions_ago_is_noticed_even_after_it_went_on(lake: Lake, path: Path):
    copy = shutil.copytree(path, path.with_name("copy"))
    for _ in range(2):
        append(lake, FIRST, 1, OURS)
    seal(lake, TABLE)
    shutil.rmtree(path)
    copy.rename(path)
    assert what_changed(lake, TABLE, is_marked) is not None
    for _ in range(3):
        append(lake, SECOND, 1, OURS)
    assert dates_in(what_changed(lake, TABLE, is_marked)) == {str(FIRST), str(SECOND)}


def test_commits_that_change_no_data_are_fine(lake: Lake, path: Path):
    DeltaTable(path).optimize.compact()
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert DeltaTable(path).version() > 4
    assert what_changed(lake, TABLE) is None


def test_a_restore_is_noticed(lake: Lake, path: Path):
    DeltaTable(path).restore(1)
    assert dates_in(what_changed(lake, TABLE, is_marked)) == {str(SECOND)}


def clean_up_log(path: Path) -> None:
    """As Delta does it: what the newest checkpoint makes superfluous."""
    table = DeltaTable(path)
    table.create_checkpoint()
    for version in range(table.version()):
        for file in commit_file(path, version).parent.glob(f"{version:020}.*"):
            file.unlink()


def test_a_log_that_was_cleaned_up_is_told_by_rows(lake: Lake, path: Path):
    DeltaTable(path).optimize.compact()
    clean_up_log(path)
    assert what_changed(lake, TABLE) is None
    append(lake, SECOND, 1)
    assert what_changed(lake, TABLE) is not None
    assert what_changed(lake, TABLE, lambda *_: True) is None
    clean_up_log(path)
    assert dates_in(what_changed(lake, TABLE, lambda *_: True)) == {str(SECOND)}


def test_a_clean_up_at_the_sealed_version_hides_nothing(lake: Lake, path: Path):
    clean_up_log(path)
    assert what_changed(lake, TABLE) is None
    append(lake, SECOND, 1, OURS)
    assert what_changed(lake, TABLE, is_marked) is None
    assert what_changed(lake, TABLE) is not None


STEPS = st.lists(st.sampled_from(["append", "optimize", "delete", "seal"]), max_size=6)


@given(steps=STEPS)
@examples(25)
def test_what_is_sealed_or_ours_is_fine_and_all_else_is_not(
    tmp_path_factory: Any, steps: list[str]
):
    """Any commits of ours: fine. The newest one emptied: noticed where rows or files were its."""
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    append(lake, FIRST, 3, OURS)
    seal(lake, TABLE)
    path = Path(lake.root, TABLE)
    marked = CommitProperties(custom_metadata={"userMetadata": OURS})
    for step in steps:
        if step == "append":
            append(lake, SECOND, 2, OURS)
        elif step == "optimize":
            DeltaTable(path).optimize.compact()
        elif step == "delete":
            DeltaTable(path).delete("n = 0", commit_properties=marked)
        else:
            seal(lake, TABLE)
    assert what_changed(lake, TABLE, is_marked) is None
    seal(lake, TABLE)
    newest = DeltaTable(path).version()
    had_files = any(
        action.keys() & {"add", "remove"} for action in read_actions(lake, str(path), newest)
    )
    commit_file(path, newest).write_text("")
    # Nothing is lost with a commit that had found nothing to change.
    assert (what_changed(lake, TABLE, is_marked) is not None) == had_files
