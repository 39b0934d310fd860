"""A table, or bronze, that is older than the checkpoint: the run stops and says what mends it.

Release 0.5 went on from it without a word (issue 13, L8).
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.lake.paths import LakeError
from include.plans.reseed_options import ReseedOptions
from include.plans.waiting_rows import has_waiting_rows
from include.streams import device_signals
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.bronze import append_commit
from tests.engines.lake_runs import table_of
from tests.late_lakes import days, found, in_runs, is_right, rows_of, small, truth, until_of

pytestmark = [pytest.mark.spark, pytest.mark.full]

SIGNALS, FOLD = small("device_signals"), device_signals.FOLD
WAY_OUT = f"./stateful reseed {SIGNALS.name} --apply"


def table_log(lake) -> Path:
    return Path(lake.table(SIGNALS.name), "_delta_log")


def lose_newest_commit(spark, lake) -> None:
    """As a power cut does: its bytes were not on the disk yet."""
    newest = max(file for file in table_log(lake).glob("*.json") if file.stem.isdecimal())
    newest.write_bytes(b"")
    for checksum in (newest.with_suffix(".crc"), newest.with_name(f".{newest.name}.crc")):
        checksum.unlink(missing_ok=True)


def restore(spark, lake) -> None:
    path = lake.table(SIGNALS.name)
    older = DeltaTable(path).version() - 2
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {older}")


def copy_back(spark, lake) -> None:
    """As of two versions before: later data files are there, but nobody knows them."""
    keep = DeltaTable(lake.table(SIGNALS.name)).version() - 2
    for file in table_log(lake).iterdir():
        number = file.name.lstrip(".").partition(".")[0]
        if number.isdecimal() and int(number) > keep:
            file.unlink()


@pytest.mark.parametrize("harm", [lose_newest_commit, restore, copy_back])
def test_an_older_table_stops_the_run_and_is_made_anew(
    spark, lake, harm: Callable[..., None]
) -> None:
    stamped = days(2, seed=50)
    in_runs(spark, lake, SIGNALS, stamped, runs=2)
    harm(spark, lake)
    assert table_of(lake, SIGNALS, FOLD) != truth(
        FOLD, rows_of(stamped), until_of(SIGNALS, stamped)
    )
    assert has_waiting_rows(lake, SIGNALS)
    assert found(lake, SIGNALS) == {"table_changed"}
    with pytest.raises(LakeError, match=WAY_OUT):
        drain(SparkEngine(spark), lake, SIGNALS)
    reseed(SparkEngine(spark), lake, SIGNALS, ReseedOptions())
    assert is_right(lake, SIGNALS, stamped)


def test_an_older_bronze_stops_the_run_and_one_ingested_anew_mends_it(spark, lake):
    stamped, bronze = days(2, seed=51), Path(lake.bronze(SIGNALS.source))
    in_runs(spark, lake, SIGNALS, stamped[:5], runs=1)
    copy = shutil.copytree(bronze, bronze.with_name("copy"))
    in_runs(spark, lake, SIGNALS, stamped[5:], runs=1)
    shutil.rmtree(bronze)
    copy.rename(bronze)
    assert has_waiting_rows(lake, SIGNALS)  # though nothing is new
    with pytest.raises(
        LakeError, match=r"older copy.*ingest signals anew.*set-aside bronze/signals"
    ):
        drain(SparkEngine(spark), lake, SIGNALS)
    shutil.rmtree(bronze)
    for commit in stamped:
        append_commit(lake, SIGNALS.source, FOLD, commit)
    reseed(SparkEngine(spark), lake, SIGNALS, ReseedOptions())
    assert is_right(lake, SIGNALS, stamped)
