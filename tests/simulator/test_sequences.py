"""The hardest sequences of operations, by the local engine and on Spark itself."""

from itertools import cycle

import pytest
from pyspark.errors import PySparkException

from include.lake.errors import RowCountError
from tests.simulator.auditor import WrongError
from tests.simulator.kinds import INT
from tests.simulator.operations import Operations
from tests.simulator.planted import planted
from tests.simulator.sequences import FINDS, SEQUENCES
from tests.simulator.shapes import Shape
from tests.simulator.spark_world import spark_world
from tests.simulator.stream_files import KINDS

# Whatever a key may have beside its state: values seen, named timers, an end.
AROUND = Shape((INT,), by=(0,), within=600, timers=(90, 1440), ttl=2880)


def check(kind, sequence, spark=None):
    operations = Operations(kind, opened=spark and spark_world(spark, shape=AROUND))
    if spark:
        operations.death = RuntimeError
        operations.loud = (*operations.loud, PySparkException)
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
    with planted(bug), pytest.raises((WrongError, RowCountError)):
        check("counts", FINDS[bug])


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize(("kind", "sequence"), list(zip(cycle(KINDS), SEQUENCES, strict=False)))
def test_a_sequence_is_right_on_spark_too(spark, kind, sequence):
    check(kind, sequence, spark)
