"""The chain of `cascade.py` on Spark: what is taken back crosses files and tasks, and an erasure finds all."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from include.amend.erase_rows import erased_key
from include.amend.plans import plan_erasure
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.erase_key import erase
from tests.amend.rocksdb import unpacked_by
from tests.amend.scan import files_with
from tests.simulator.cascade import NAMES, SECOND_US, Cascade, Click, open_cascade

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.turn(0)]  # minutes of batches

SECRET = "0123456789abcdef" * 2


@pytest.fixture
def chain(spark: SparkSession) -> Iterator[Cascade]:
    with open_cascade() as made:
        made.engine = SparkEngine(spark)  # type: ignore[assignment]
        for name in NAMES:  # workers do not find the files
            cloudpickle.register_pickle_by_value(importlib.import_module(f"include.streams.{name}"))
        yield made


def test_a_late_row_and_an_erasure_at_the_root_go_through_the_chain(
    chain: Cascade, spark: SparkSession
):
    for number in range(4):
        chain.now_us += 10 * SECOND_US
        chain.land(
            *[
                Click(user, chain.now_us - of * SECOND_US, number)
                for of, user in enumerate(["u", "v", "w", SECRET])
            ]
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
    _erase(chain, spark)
    chain.settle()
    assert chain.compared


def _erase(chain: Cascade, spark: SparkSession) -> None:
    """No byte of the key's 32 is left; the table of c has the last four alone."""
    root, wanted, unpack = Path(chain.lake.root), [SECRET.encode()], unpacked_by(spark)
    key = erased_key("clicks", f"user={SECRET}")
    assert {"b", "c"} <= {*plan_erasure(chain.lake, key).behind}
    kinds = {"/".join(name.split("/")[:2]) for name in files_with(root, wanted, unpack)}
    assert kinds >= {"bronze/clicks", "bronze/from_a", "bronze/from_b"} | {
        f"{part}/{name}" for part in ("tables", "checkpoints", "savepoints") for name in "ab"
    }
    erase(chain.engine, chain.lake, key)
    assert files_with(root, wanted, unpack) == set()
    chain.clicks[:] = [click for click in chain.clicks if click.user != SECRET]
    chain.check()
