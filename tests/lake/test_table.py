"""Open tables: what is staged is found by its bounds, commits are the next version or none, and others' are seen."""

import json
from datetime import UTC, date, timedelta
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError
from hypothesis import given
from hypothesis import strategies as st

from include.lake.columns import Column, create_if_absent, documented, without_comments
from include.lake.paths import Lake
from include.lake.table import Table, stage
from tests.examples import examples
from tests.refused import refused

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "decimal(20,2)": st.decimals(-(10**18) + 1, 10**18 - 1, places=2),
    "boolean": st.booleans(),
    "date": st.dates(date(1, 1, 1)),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
}
COLUMNS = [Column(f"c{number}", kind, kind) for number, kind in enumerate(KINDS)]
SCHEMA = without_comments(documented(COLUMNS))
rows = st.lists(st.tuples(*(st.none() | of for of in KINDS.values())), min_size=1, max_size=4)


def table_of(given: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in given], SCHEMA)


def made(root: str) -> Table:
    lake = Lake(root)
    create_if_absent(lake.bronze("signals"), COLUMNS, "", {})
    return Table.open(lake, lake.bronze("signals"))


@examples(300)
@given(st.lists(rows, min_size=1, max_size=3))
def test_each_row_is_found_by_each_of_its_values(files):
    with TemporaryDirectory() as root:
        table = made(root)
        for each in files:
            table.commit(stage(table.path, table_of(each), SCHEMA), {"batch": 0})
        stored = pa.concat_tables(map(table_of, files))
        dataset = table.delta.to_pyarrow_dataset()
        for name in SCHEMA.names:
            for value in stored[name].unique():
                if value.is_valid and not (isinstance(value.as_py(), float) and value != value):
                    wanted = pc.field(name) == value
                    assert dataset.count_rows(wanted) == stored.filter(wanted).num_rows


@examples(100)
@given(rows)
def test_who_finds_a_staged_file_adds_it_as_who_staged_it_would(given):
    with TemporaryDirectory() as root:
        table = made(root)
        schema = SCHEMA.remove(SCHEMA.names.index("c2"))  # of fractions less is known then
        (staged,) = stage(table.path, table_of(given), schema)
        assert table.found(staged.path).staged == staged
        assert json.loads(staged.stats)["numRecords"] == len(given)


@pytest.fixture
def table(lake: Lake) -> Table:
    found = made(lake.root)
    found.commit([], {"batch": 7})
    return found


def test_of_two_commits_of_one_version_the_second_is_not_made(lake: Lake, table: Table):
    other = Table.open(lake, table.path)
    other.commit([], {"batch": 8})
    with pytest.raises(CommitFailedError):
        table.commit([], {"batch": 9})
    table.reopen()
    assert table.record() == other.record()


def test_no_record_is_said_over_what_others_have_changed(lake: Lake, table: Table):
    later = Table.open(lake, table.path)
    write_deltalake(table.path, table_of([("a", *[None] * 6)]), mode="append")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("include.lake.table.KEPT", timedelta(0))
        table.reopen()
        table.keep_record()
    with refused("of_other_times"):
        table.record()
    with refused("of_other_times"):
        later.alter(lambda delta: delta.update_incremental())
