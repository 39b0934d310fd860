"""A damaged savepoint is struck off; one that cannot be read just now is kept, and said so."""

import os
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError

from include.fold.ddl import state_rows_ddl
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.savepoints.manifest import Savepoint, SavepointError, savepoints_of
from include.stream_definition import load_definition
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.live_savepoint import read_savepoint, write_savepoint
from spark_jobs.replay_bronze import plan_with_sound_base
from spark_jobs.tables.savepoint_rows import Cause, is_damage
from tests.late_lakes import START_US, small
from tests.refused import refused

STREAM = small("user_counts")
FOLD = load_definition(STREAM).fold
JAVA_NO_FILE = "java.io.FileNotFoundException"


@pytest.mark.parametrize(
    ("cause", "damaged"),
    [
        (Cause(JAVA_NO_FILE, "File file:/lake/a.parquet does not exist"), True),
        (Cause(JAVA_NO_FILE, "No such file or directory: s3a://lake/a.parquet"), True),
        (Cause(JAVA_NO_FILE, "/lake/a.parquet (Permission denied)"), False),
        (Cause("java.lang.RuntimeException", "a.parquet is not a Parquet file. Expected"), True),
        (Cause("org.apache.hadoop.fs.ChecksumException", "Checksum error: a at 0"), True),
        (Cause("java.io.IOException", "FAILED_TO_UNCOMPRESS(5)"), True),
        (Cause("java.net.ConnectException", "Connection refused"), False),
        (Cause("java.nio.file.AccessDeniedException", "s3a://lake/a.parquet"), False),
        (
            Cause(
                "org.apache.spark.SparkException",
                "[FAILED_READ_FILE.FILE_NOT_EXIST] File does not exist. It is corrupt",
            ),
            False,
        ),
    ],
)
def test_only_what_is_certain_is_damage(cause, damaged):
    assert is_damage(cause) == damaged


@pytest.fixture
def savepoint(spark, lake) -> Savepoint:
    rows = [(0, f"u{n}", (n,), START_US + n, None) for n in range(500)]
    states = spark.createDataFrame(rows, state_rows_ddl(FOLD)).coalesce(1)
    manifest = {
        "origin": "live",
        "run_id": "0123456789",
        "events": 500,
        "bronze_id": "b",
        "code": "c",
        "state_schema": "s",
    }
    engine = SparkEngine(spark)
    write_savepoint(engine, lake, states, FOLD, START_US + 1000, manifest)
    (written,) = savepoints_of(lake, STREAM.name)
    assert read_savepoint(engine, lake, written).count() == 500
    return written


def the_file(lake: Lake) -> Path:
    (file,) = Path(lake.savepoints(STREAM.name)).glob("*/*.parquet")
    return file


def gone(lake: Lake) -> None:
    the_file(lake).unlink()


def cut(lake: Lake) -> None:
    """As a copy leaves it that was cut off: without the file system's own checksum."""
    file = the_file(lake)
    os.truncate(file, file.stat().st_size // 2)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def cut_under_its_checksum(lake: Lake) -> None:
    os.truncate(the_file(lake), the_file(lake).stat().st_size // 2)


def without_table(lake: Lake) -> None:
    rmtree(lake.savepoints(STREAM.name))


@pytest.mark.spark
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(gone, marks=pytest.mark.full),
        cut,
        pytest.param(cut_under_its_checksum, marks=pytest.mark.full),
        without_table,
    ],
)
def test_a_damaged_savepoint_is_struck_off(spark, lake, savepoint, damage):
    damage(lake)
    engine = SparkEngine(spark)
    with refused("unreadable_savepoint", subject=savepoint.savepoint_id):
        read_savepoint(engine, lake, savepoint)
    planned = plan_with_sound_base(engine, lake, "r1", lambda: plan_from(lake))
    assert planned.base.savepoint is None
    assert savepoints_of(lake, STREAM.name) == []
    (finding,) = read_ops(lake, "findings", {"finding": "savepoint_damaged"}).to_pylist()
    assert savepoint.savepoint_id in finding["detail"]


@pytest.mark.spark
def test_a_file_that_java_cannot_open_for_another_reason_is_no_damage(spark, lake, savepoint):
    """Java calls a folder in its place a missing file, as it does one that it may not read."""
    file = the_file(lake)
    file.unlink()
    file.mkdir()
    with pytest.raises(Py4JJavaError) as raised:
        plan_with_sound_base(SparkEngine(spark), lake, "r1", lambda: plan_from(lake))
    assert not isinstance(raised.value, SavepointError)
    assert savepoints_of(lake, STREAM.name) == [savepoint]


class Unreachable:
    """An engine whose storage does not answer."""

    def savepoint_contents(self, *_: object) -> None:
        raise ConnectionError("connection refused")


@pytest.mark.spark
def test_a_savepoint_that_cannot_be_read_just_now_is_kept(spark, lake, savepoint):
    with pytest.raises(ConnectionError):
        plan_with_sound_base(Unreachable(), lake, "r1", lambda: plan_from(lake))
    assert savepoints_of(lake, STREAM.name) == [savepoint]
    assert not lake.is_delta_table(lake.ops("findings"))


def plan_from(lake: Lake) -> SimpleNamespace:
    """A plan whose base is the newest savepoint there is."""
    known = savepoints_of(lake, STREAM.name)
    return SimpleNamespace(base=SimpleNamespace(savepoint=known[-1] if known else None))
