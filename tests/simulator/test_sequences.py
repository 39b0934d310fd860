"""The hardest sequences of operations, by the local engine and on Spark itself."""

import pytest

from tests.simulator.auditor import WrongError
from tests.simulator.operations import Operations
from tests.simulator.planted import planted
from tests.simulator.sequences import FINDS, SEQUENCES
from tests.simulator.spark_world import spark_world


def check(kind, sequence, spark=None):
    operations = Operations(kind, opened=spark and spark_world(spark))
    if spark:
        operations.death = RuntimeError
        operations.restart = spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache
    try:
        operations.some_days()
        sequence(operations)
        operations.way_out()
    finally:
        operations.close()


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize(
    "kind",
    ["silences", *(pytest.param(k, marks=pytest.mark.full) for k in ("counts", "counts_per_key"))],
)
def test_a_sequence_is_right_or_says_where_not(kind, sequence):
    check(kind, sequence)


@pytest.mark.parametrize("bug", FINDS)
def test_a_bug_that_is_put_back_is_found_by_its_sequence(bug):
    with planted(bug), pytest.raises(WrongError):
        check("counts", FINDS[bug])


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_sequence_is_right_on_spark_too(spark, sequence):
    check("silences", sequence, spark)
