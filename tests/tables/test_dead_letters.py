"""Dead letters as Spark and delta-rs write them: a batch's are appended, those of an interval replaced."""

from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.fold.arrow_values import DEAD_LETTERS
from include.fold.definition import DEAD_LETTERS_DDL, DeadLetter
from include.lake.dead_letters import COLUMNS, dead_letters_number, put_back_dead_letters
from spark_jobs.tables.dead_letters import DeadLetters, Summary
from tests.refused import refused

pytestmark = pytest.mark.spark
STREAM, DAY_US = "signals", 86_400_000_000


def calls(*times_us: int, cause: str = "event") -> pa.Table:
    letters = (DeadLetter("a", us, 0, cause, None, "ValueError", "no", None) for us in times_us)
    return pa.Table.from_pylist([letter._asdict() for letter in letters], DEAD_LETTERS)


@pytest.fixture
def table(spark, lake) -> DeadLetters:
    """Two batches, of which delta-rs has written the first, and Spark the second."""
    table = DeadLetters(lake, STREAM, spark)
    table.append(calls(1, DAY_US - 1, DAY_US))
    table.append(on_spark(spark, calls(DAY_US + 1, 3 * DAY_US, cause="timeout")))
    return table


def on_spark(spark, letters: pa.Table):
    return spark.createDataFrame(letters.to_pylist(), DEAD_LETTERS_DDL)


def times_in(table: DeadLetters) -> Counter[int]:
    rows = DeltaTable(table.path).to_pyarrow_table().to_pylist()
    assert all(row["at_date"] == row["at"].date() for row in rows)
    return Counter(micros_of(row["at"]) for row in rows)


def test_a_killed_jobs_dead_letters_are_put_back(lake, table):
    whole = times_in(table)
    assert whole == Counter([1, DAY_US - 1, DAY_US, DAY_US + 1, 3 * DAY_US])
    number = dead_letters_number(lake, STREAM)
    table.append(calls(2))
    assert dead_letters_number(lake, STREAM) > number
    put_back_dead_letters(lake, STREAM, number)
    assert times_in(table) == whole


def test_those_of_an_interval_are_replaced_in_one_commit(spark, lake, table):
    begun, number = DeltaTable(table.path).version(), dead_letters_number(lake, STREAM)
    table.replace_range([on_spark(spark, calls(0, DAY_US, DAY_US))], DAY_US, until_us=3 * DAY_US)
    assert times_in(table) == Counter([1, DAY_US - 1, DAY_US, DAY_US, 3 * DAY_US])
    table.replace_range([], DAY_US, until_us=2 * DAY_US)
    table.replace_range([], DAY_US, until_us=2 * DAY_US)  # nothing for nothing
    assert times_in(table) == Counter([1, DAY_US - 1, 3 * DAY_US])
    assert DeltaTable(table.path).version() == begun + 3
    assert dead_letters_number(lake, STREAM) == number + 3
    fields = DeltaTable(table.path).schema().fields
    assert [field.metadata.get("comment") for field in fields] == [c.comment for c in COLUMNS]


def test_what_others_have_changed_is_replaced_as_a_whole_alone(spark, table):
    DeltaTable(table.path).delete("at_date = '1970-01-01'")
    with refused("of_other_times"):
        table.replace_range([], DAY_US, until_us=None)
    table.replace_range([on_spark(spark, calls(7))], None, until_us=None)
    assert times_in(table) == Counter([7])


def test_both_are_summed_alike(spark, table):
    parts = [calls(5, 9), calls(7, cause="timeout")]
    frames = [on_spark(spark, part) for part in parts]
    for from_us, expected in ((None, Summary(2, 1, 5, 9)), (6, Summary(1, 1, 7, 9)), (10, None)):
        assert table.summary(parts, from_us) == table.summary(frames, from_us) == expected
