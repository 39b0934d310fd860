"""The list of settings: complete, as Spark has it, and guarding what is held by hand."""

from dataclasses import replace

import pytest

from include.maintain.tune_rocksdb import PINNED, SETTINGS, hand_settings
from include.registry import stream_named
from include.spark.conf import STATE, STATE_STORE
from tests.refused import refused

STREAM = stream_named("user_counts")


def holding(**settings: str):
    return replace(STREAM, rocksdb={name.replace("__", "."): v for name, v in settings.items()})


@pytest.mark.spark
def test_the_list_is_sparks_own_with_its_defaults(spark):
    loader = spark.sparkContext._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    kind = loader.loadClass("org.apache.spark.sql.execution.streaming.state.RocksDBConf$")
    module = kind.getField("MODULE$").get(None)
    entries = {}
    for field in kind.getDeclaredFields():
        if field.getType().getSimpleName() == "SQLConfEntry":
            field.setAccessible(True)
            entry = field.get(module)
            entries[entry.fullName()] = entry.default()

    ours = {s.full_name.lower(): s.spark for s in SETTINGS.values() if s.below != STATE_STORE}
    pinned = {
        name: entries.pop(f"{STATE_STORE}.rocksdb.{name}".lower())
        for name in ("formatVersion", "mergeOperatorVersion")
    }
    assert ours == entries
    assert pinned.keys() <= PINNED.keys()


@pytest.mark.spark
def test_the_settings_beside_rocksdb_are_sparks_own_with_their_defaults(spark):
    beside = [s for s in SETTINGS.values() if s.below == STATE_STORE]
    assert beside
    for setting in beside:
        assert spark.conf.get(setting.full_name) == setting.spark


def test_what_every_job_is_submitted_with_is_no_other_value_than_ours():
    ours = {setting.full_name: setting.value for setting in SETTINGS.values()}
    assert {name: ours.get(name, value) for name, value in STATE.items()} == STATE


def test_our_values_are_allowed_and_have_a_reason():
    for setting in SETTINGS.values():
        for value in (setting.value, setting.spark):
            assert hand_settings(replace(STREAM, rocksdb={setting.name: value}))
        assert setting.why
    assert not SETTINGS.keys() & PINNED.keys()


def test_what_is_held_by_hand_is_taken_as_it_is():
    stream = holding(writeBufferSizeMB="8", changelogCheckpointing__enabled="false")
    assert hand_settings(stream) == stream.rocksdb
    assert hand_settings(STREAM) == {}


WRONG = {
    "maxMemoryUsageMB": ["1_000", 64],
    "writeBufferCacheRatio": ["nan"],
    "boundedMemoryUsage": ["True"],
    "compression": ["zstandard"],
    "maxMemoryUsageMb": ["64"],  # a typo
    "spark.sql.streaming.stateStore.rocksdb.blockSizeKB": ["8"],
    **{name: ["1"] for name in PINNED},
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_no_run_can_be_held_to_is_refused_by_name(name):
    for value in WRONG[name]:
        with refused("wrong_setting", subject=name):
            hand_settings(replace(STREAM, rocksdb={name: value}))
