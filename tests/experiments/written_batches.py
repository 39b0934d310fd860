"""Batches for the experiment with writers: two tables, what each batch does to them, and both in plain Python."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from include.fold.product_table import CHANGE_FEED, PROPERTIES
from include.lake.columns import INSTANT, Column, create_if_absent
from include.lake.paths import files_of

AT, DATE, KEY, REMOVED = "emitted_at", "emitted_date", "key", "removed"


class Batch(NamedTuple):
    """What a commit says of itself: Delta's transaction, and the whole record."""

    app: str
    number: int
    record: dict[str, Any]

    @property
    def metadata(self) -> str:
        return json.dumps({"stateful": self.record})


# What each batch does to a table of all rows, and to one of a row per key. The third has no rows; the
# sixth is without effect: of a day without rows, and of keys that are not there.
OF_ALL = ("append", "append", "append", "restate", "append", "restate", "append")
PER_KEY = ("merge", "merge", "append", "merge", "rebuild", "merge", "merge")
BATCHES, EMPTY, WITHOUT_EFFECT = len(OF_ALL), 2, 5
DAYS = (0, 1, 2, 1, 4, 20, 6)
APP = "a_stream/1"
START = datetime(2026, 3, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
PLAIN = (Column(KEY, "string", "Key"), Column("n", "bigint", "N"), Column(AT, "timestamp", "When"))
TABLES = {"appended": (*PLAIN, Column(DATE, "date", "Partition")), "updated": PLAIN}


def rows_of(number: int) -> pa.Table:
    """The rows of a batch."""
    unknown = "no-" if number == WITHOUT_EFFECT else ""
    drawn = [(i * 7 + number * 13) % 60 for i in range(0 if number == EMPTY else 40)]
    at = [START + timedelta(days=DAYS[number], seconds=i) for i in range(len(drawn))]
    removed = [bool(unknown) or i % 9 == 5 for i in range(len(drawn))]
    return table_of([f"{unknown}key-{n}" for n in drawn], 1000 * number, at, removed)


def table_of(
    keys: list[str], first: int, at: Sequence[datetime], removed: Sequence[bool]
) -> pa.Table:
    instants = pa.array(at, INSTANT)
    columns = {KEY: pa.array(keys, pa.string())}
    columns |= {"n": pa.array(range(first, first + len(keys)), pa.int64()), AT: instants}
    return pa.table(
        columns | {DATE: instants.cast(pa.date32()), REMOVED: pa.array(removed, pa.bool_())}
    )


def batch_of(number: int) -> Batch:
    """With a record as large as after 60 restatements."""
    intervals = [[f"2026-01-{n:02}T00:00:00Z", None, n, "0123456789abcdef"] for n in range(60)]
    return Batch(APP, number, {"operation": "batch", "batch": number, "intervals": intervals})


def write(number: int, rows: Any, kept: Any, appended: Any, updated: Any) -> None:
    """A batch's two commits by two writers; `kept` are the rows that are not removed."""
    batch = batch_of(number)
    if OF_ALL[number] == "append":
        appended.append(kept, batch)
    else:
        day = int(START.timestamp()) * 1_000_000 + DAYS[number] * DAY_US
        appended.replace(kept, (day, day + DAY_US), batch)
    if PER_KEY[number] == "append":
        updated.append(kept, batch)
    elif PER_KEY[number] == "merge":
        updated.merge(rows, batch)
    else:
        updated.replace(kept, None, batch)


def oracle(newest: int) -> dict[str, Counter[tuple[Any, ...]]]:
    """Both tables after a batch, in plain Python."""
    days: dict[date, list[tuple[Any, ...]]] = {}
    keys: dict[str, tuple[Any, ...]] = {}
    for number in range(newest + 1):
        if PER_KEY[number] == "rebuild":
            keys.clear()
        if OF_ALL[number] == "restate":
            days.pop((START + timedelta(days=DAYS[number])).date(), None)
        for row in rows_of(number).to_pylist():
            keys.pop(row[KEY], None)
            if not row[REMOVED]:
                keys[row[KEY]] = (row[KEY], row["n"], row[AT])
                days.setdefault(row[DATE], []).append(keys[row[KEY]])
    rows = [row for day in days.values() for row in day]
    return {"appended": Counter(rows), "updated": Counter(keys.values())}


def records(path: str) -> list[dict[str, Any]]:
    """The records that a table's log has, newest first."""
    said = (commit.get("userMetadata") for commit in DeltaTable(path).history())
    return [json.loads(text)["stateful"] for text in said if text]


def check(root: str, newest: int | None = None) -> list[int]:
    """The newest batch of each table, of which each is the oracle's, with one record of each batch."""
    found = []
    for name in TABLES:
        path = f"{root}/{name}"
        numbers = [record["batch"] for record in records(path)]
        found.append(len(numbers) - 1)
        assert numbers == list(range(len(numbers)))[::-1], numbers
        table = DeltaTable(path)
        assert (-1 if (last := table.transaction_version(APP)) is None else last) == found[-1]
        rows = table.to_pyarrow_table(filesystem=files_of(path)).select([KEY, "n", AT]).to_pylist()
        assert Counter(tuple(row.values()) for row in rows) == oracle(found[-1])[name], name
    assert found[0] - found[1] in (0, 1)
    assert newest is None or found == [newest] * 2
    return found


def make_table(path: str, columns: Sequence[Column] = PLAIN, parts: Sequence[str] = ()) -> None:
    create_if_absent(path, columns, "rows", PROPERTIES | CHANGE_FEED, parts)


def make(root: str) -> None:
    """Both tables, and a bronze with a file of each batch, which Spark reads one by one."""
    for name, columns in TABLES.items():
        parts = [DATE] if name == "appended" else []
        make_table(f"{root}/{name}", columns, parts)
    for number in range(BATCHES):
        rows = rows_of(number if number != EMPTY else 0)
        write_deltalake(f"{root}/bronze", rows, mode="append")
