"""The list of settings: complete, as Spark has it, and guarding what is held by hand."""

from dataclasses import replace

import pytest

from include.maintain.tune_rocksdb import BY_HAND, full_name, hand_settings
from include.registry import stream_named
from include.spark.conf import STATE
from tests.refused import refused

STREAM = stream_named("user_counts")


@pytest.mark.spark
def test_the_list_is_sparks_own(spark):
    loader = spark.sparkContext._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    kind = loader.loadClass("org.apache.spark.sql.execution.streaming.state.RocksDBConf$")
    module = kind.getField("MODULE$").get(None)
    entries = set()
    for field in kind.getDeclaredFields():
        if field.getType().getSimpleName() == "SQLConfEntry":
            field.setAccessible(True)
            entry = field.get(module)
            entries.add(entry.fullName())

    # What the first run writes into the checkpoint, or another name is for.
    none = {full_name(name).lower() for name in ("formatVersion", "mergeOperatorVersion")}
    ours = {full_name(name).lower() for name in BY_HAND} - {
        full_name("minDeltasForSnapshot").lower()
    }
    assert entries == ours | none
    assert spark.conf.get(full_name("minDeltasForSnapshot"))


def test_what_every_job_is_submitted_with_may_be_held_by_hand():
    ours = {name: STATE[full_name(name)] for name in BY_HAND if full_name(name) in STATE}
    assert hand_settings(replace(STREAM, rocksdb=ours)) == ours != {}


@pytest.mark.parametrize(
    "name",
    [
        "maxMemoryUsageMb",  # a typo
        "spark.sql.streaming.stateStore.rocksdb.blockSizeKB",
        "formatVersion",  # the first run writes it into the checkpoint
        "providerClass",
    ],
)
def test_what_no_run_can_be_held_to_is_refused_by_name(name):
    with refused("wrong_setting", subject=name):
        hand_settings(replace(STREAM, rocksdb={name: "5"}))
