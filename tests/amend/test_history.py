"""A table without its past, also when the process that takes it away dies on its way."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from include.amend import erase_rows
from include.amend.erase_rows import forget_history
from include.lake.paths import Lake
from tests.amend.scan import files_with
from tests.deaths import KilledError, die

SECRET = b"who-is-to-be-forgotten-0123456789"
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.mark.parametrize("step", [None, "_delete_files", "_clean_log"])
def test_no_file_of_an_older_version_or_of_the_change_feed_is_left(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str | None
):
    path = lake.table("any")
    rows = pa.table({"key": [SECRET.decode(), "other"]})
    write_deltalake(path, rows, configuration=FEED)
    DeltaTable(path).update({"key": "'none'"}, predicate="key != 'other'")
    assert any(Path(path, "_change_data").iterdir())
    if step is not None:
        with monkeypatch.context() as patch:
            patch.setattr(erase_rows, step, die)
            with pytest.raises(KilledError):
                forget_history(lake, path)
    forget_history(lake, path)
    assert files_with(Path(lake.root), [SECRET]) == set()
    assert not any(Path(path, "_change_data").iterdir())
    assert sorted(DeltaTable(path).to_pyarrow_table()["key"].to_pylist()) == ["none", "other"]
