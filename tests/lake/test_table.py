"""Open tables: what is staged is found by its bounds, commits are the next version or none, and others' are seen."""

import json
from collections.abc import Callable
from datetime import UTC, date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from include.lake.columns import Column, documented, without_comments
from include.lake.delta_log import create_if_absent
from include.lake.paths import Lake
from include.lake.table import Table, found_file, stage
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
                    found = dataset.to_table(
                        [name], filter=wanted
                    )  # a count goes by statistics, which pass NaN over
                    assert found.num_rows == stored.filter(wanted).num_rows


@examples(100)
@given(rows)
def test_who_finds_a_staged_file_adds_it_as_who_staged_it_would(given):
    with TemporaryDirectory() as root:
        table = made(root)
        schema = SCHEMA.remove(SCHEMA.names.index("c2"))  # of fractions less is known then
        (staged,) = stage(table.path, table_of(given), schema)
        assert found_file(table.path, staged.path) == staged
        assert json.loads(staged.stats)["numRecords"] == len(given)


@pytest.fixture
def table(lake: Lake) -> Table:
    found = made(lake.root)
    found.commit([], {"batch": 7})
    return found


def test_no_record_is_said_over_what_others_have_changed(lake: Lake, table: Table):
    later = Table.open(lake, table.path)
    write_deltalake(table.path, table_of([("a", *[None] * 6)]), mode="append")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("include.lake.table.RETAINED", timedelta(0))
        table.reopen()
        table.keep_record()
    with refused("of_other_times"):
        table.record()
    with refused("of_other_times"):
        later.alter(lambda delta: delta.update_incremental())


def appended(path: str) -> None:
    # A column may have come since.
    write_deltalake(path, table_of([("b", *[None] * 6)]), mode="append", schema_mode="merge")


def altered(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[str], None]:
    """Change columns as Spark does under delta.columnMapping.mode: a commit of the table's metadata alone."""

    def alter(path: str) -> None:
        log = Path(path, "_delta_log")
        actions = map(json.loads, (log / f"{0:020}.json").read_text().splitlines())
        metadata = next(action for action in actions if "metaData" in action)
        schema = json.loads(DeltaTable(path).schema().to_json())
        change(schema["fields"])
        metadata["metaData"]["schemaString"] = json.dumps(schema)
        info = {"commitInfo": {"operation": "ALTER TABLE", "timestamp": 0}}
        text = "\n".join(map(json.dumps, [info, metadata]))
        (log / f"{DeltaTable(path).version() + 1:020}.json").write_text(text)

    return alter


def vacuum(path: str) -> None:
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def clean_up(path: str) -> None:
    """Delete the commits that the newest checkpoint makes superfluous, as Delta does in time."""
    table = DeltaTable(path)
    table.create_checkpoint()
    for version in range(table.version()):
        Path(path, "_delta_log", f"{version:020}.json").unlink(missing_ok=True)


MORE = pa.schema({"more": pa.int64()})
HARMLESS: dict[str, Callable[[str], Any]] = {
    "optimize": lambda path: DeltaTable(path).optimize.compact(),
    "vacuum": vacuum,
    "property": lambda path: DeltaTable(path).alter.set_table_properties({"any": "1"}, False),
    "comment": lambda path: DeltaTable(path).alter.set_column_metadata("c0", {"comment": "Any"}),
    "column": lambda path: DeltaTable(path).alter.add_columns(Schema.from_arrow(MORE).fields),
    "moved": altered(list.reverse),
}
HARM: dict[str, Callable[[str], Any]] = {
    "append": appended,
    "delete": lambda path: DeltaTable(path).delete("c0 = 'a'"),
    "update": lambda path: DeltaTable(path).update({"c1": "7"}),
    "restore": lambda path: DeltaTable(path).restore(1, ignore_missing_files=True),
    "dropped": altered(lambda fields: fields.pop()),
    "renamed": altered(lambda fields: fields[-1].update(name="other")),
    "retyped": altered(
        lambda fields: next(f for f in fields if f["name"] == "c1").update(type="string")
    ),
    "cleaned": lambda path: (DeltaTable(path).optimize.compact(), clean_up(path)),
    "emptied": lambda path: log_of_newest(path).write_text(""),
    "cut": lambda path: log_of_newest(path).write_text(log_of_newest(path).read_text()[:-20]),
}


def log_of_newest(path: str) -> Path:
    return max(Path(path, "_delta_log").glob("*.json"))


@examples(60)
@given(st.lists(st.sampled_from(["ours", *HARMLESS]), max_size=5), st.sampled_from(list(HARM)))
def test_a_record_holds_until_others_change_rows_or_columns_or_the_log_is_damaged(steps, harm):
    with TemporaryDirectory() as root:
        table, lake = made(root), Lake(root)
        for number, step in enumerate(["ours", "ours", *steps, "ours"]):
            if step == "ours":
                table.reopen()
                table.commit(
                    stage(table.path, table_of([("a", *[None] * 6)]), SCHEMA), {"n": number}
                )
            elif step != "column" or step not in steps[: number - 2]:
                HARMLESS[step](table.path)
            told = Table.open(lake, table.path).record()
            assert told is not None
            assert step != "ours" or told["n"] == number
        HARM[harm](table.path)
        with refused("unreadable_table" if harm == "cut" else "of_other_times"):
            Table.open(lake, table.path).record()


def test_what_others_commit_while_a_writer_does_not_look_is_found_behind_its_record(
    lake: Lake, table: Table
):
    text = table.text({"batch": 8})
    appended(table.path)
    commit = CommitProperties(custom_metadata={"userMetadata": text})
    delta = DeltaTable(table.path)
    delta.create_write_transaction([], "append", delta.schema(), commit_properties=commit)
    with refused("of_other_times"):
        Table.open(lake, table.path).record()
