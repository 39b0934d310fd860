"""The chain of `cascade.py` on Spark: what is taken back crosses files and tasks."""

import importlib
from collections.abc import Iterator

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark_jobs.engines.spark_engine import SparkEngine
from tests.simulator.cascade import NAMES, SECOND_US, Cascade, Click, open_cascade

pytestmark = pytest.mark.spark


@pytest.fixture
def chain(spark: SparkSession) -> Iterator[Cascade]:
    with open_cascade() as made:
        made.engine = SparkEngine(spark)  # type: ignore[assignment]
        for name in NAMES:  # workers do not find the files
            cloudpickle.register_pickle_by_value(importlib.import_module(f"include.streams.{name}"))
        yield made


def test_a_late_row_at_the_root_goes_through_the_chain(chain: Cascade):
    for number in range(4):
        chain.now_us += 10 * SECOND_US
        chain.land(
            *[Click(user, chain.now_us - of * SECOND_US, number) for of, user in enumerate("uvw")]
        )
    chain.silence(20 * SECOND_US)
    chain.cascade()
    late_us = chain.now_us - 45 * SECOND_US
    chain.land(Click("u", late_us, 2))
    assert chain.cascade() == ["a", "b", "c"]
    assert -1 in chain.weights("b")
    chain.check()
    complete_us = chain.until_us("b")
    assert complete_us is not None
    chain.rewind("b", complete_us - late_us)  # what waits then has rows that are taken back
    chain.run("b")
    chain.check()
    assert chain.status("b").opened.record.totals["rows_pending"] == 0
    chain.settle()
    assert chain.compared
