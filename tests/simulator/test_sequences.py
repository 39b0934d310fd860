"""The hardest sequences of operations, by the local engine and on Spark itself."""

from dataclasses import replace
from itertools import cycle

import pytest
from pyspark.errors import PySparkException

from include.lake.errors import RowCountError
from tests.simulator.auditor import WrongError
from tests.simulator.kinds import INT, TEXT, Kind
from tests.simulator.operations import Operations, some_days
from tests.simulator.planted import PLANTED, planted
from tests.simulator.sequences import FINDS, SEQUENCES, all_that_a_key_may_have
from tests.simulator.shapes import Shape
from tests.simulator.spark_world import spark_world
from tests.simulator.stream_files import KINDS
from tests.simulator.world import GROUPED, open_world

# Whatever a key may have beside its state: values seen, named timers, an end.
AROUND = Shape((INT,), by=(0,), within=600, timers=(90, 1440), ttl=2880)
RETAINED = (("written decimal(12,2)", 2), ("ordered", 1))
RICH = replace(
    AROUND,
    fields=(INT, TEXT, Kind("decimal(12,2)", "decimal(12,2)")),
    retained=RETAINED,
    late_value=True,
    seed=3,
)
QUICK = ("value-digits", "groups-newest", "seen-ends-early")  # others take half a minute


def check(kind, sequence, spark=None, opened=None, begun=None):
    operations = Operations(kind, opened=(spark and spark_world(spark, shape=AROUND)) or opened)
    if spark:
        operations.death = RuntimeError
        operations.loud = (*operations.loud, PySparkException)
        operations.restart = spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache
    try:
        operations.world.go_on(begun) if begun else operations.some_days()
        sequence(operations)
        operations.mend_by_rebuild()
    finally:
        operations.close()


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize(
    "kind",
    ["silences", *(pytest.param(k, marks=pytest.mark.full) for k in ("counts", "counts_per_key"))],
)
def test_a_sequence_is_right_or_says_where_not(kind, sequence):
    check(kind, sequence, begun=some_days(kind))


@pytest.mark.parametrize("bug", FINDS)
def test_a_bug_that_is_put_back_is_found_by_its_sequence(bug):
    begun = some_days("counts")
    with planted(bug), pytest.raises((WrongError, RowCountError)):
        check("counts", FINDS[bug], begun=begun)


@pytest.mark.parametrize(
    "bug",
    [
        bug if bug in QUICK else pytest.param(bug, marks=pytest.mark.full)
        for bug in PLANTED
        if bug not in FINDS
    ],
)
def test_a_bug_that_could_be_is_found_with_all_that_a_key_may_have(bug):
    with planted(bug), pytest.raises(WrongError):
        check("counts", all_that_a_key_may_have, opened=open_world(source=GROUPED, shape=RICH))


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize(("kind", "sequence"), list(zip(cycle(KINDS), SEQUENCES, strict=False)))
def test_a_sequence_is_right_on_spark_too(spark, kind, sequence):
    check(kind, sequence, spark)
