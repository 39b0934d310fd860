"""The errors of a run that an error of other code has ended; without a JVM."""

from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from include.lake.errors import LakeError
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.maintain.check_checkpoint import explained
from tests.maintain.checked import STREAM
from tests.refused import commands_in
from tests.stream.bronze_lake import SOURCE, append


def fail(lake: Lake, error: Exception) -> str:
    with pytest.raises(type(error)) as raised, explained(lake, STREAM):
        raise error
    return str(raised.value)


def explained_as(lake: Lake, error: Exception) -> LakeError:
    with pytest.raises(LakeError) as raised, explained(lake, STREAM):
        raise error
    assert (raised.value.__cause__, raised.value.exit_code) == (error, 1)
    return raised.value


def test_an_error_in_a_sound_lake_and_one_of_ours_are_as_they_were(lake):
    append(lake, days=1)
    assert fail(lake, ZeroDivisionError("the function's")) == "the function's"
    assert fail(lake, LakeError("put it back")) == "put it back"
    words = f"1/0. Current offsets: {{DeltaSource[file:{lake.bronze(SOURCE)}]: 3}}"
    assert fail(lake, RuntimeError(words)) == words


@pytest.mark.parametrize(
    "said",
    [
        "Unable to open file {0}/ops/runs/a.parquet: Read-only file system (os error 30)",
        "[FAILED_READ_FILE] at file:{0}/tables/s/a.parquet\nCaused by: java.lang.OutOfMemoryError: x",
    ],
)
def test_what_the_machine_refuses_is_no_damage_of_the_file_that_it_names(lake, said):
    append(lake, days=1)
    said = said.format(lake.root)
    assert fail(lake, DeltaError(said)) == said


def test_a_log_that_is_none_is_named(lake):
    append(lake, days=1)
    max(Path(lake.bronze(SOURCE), "_delta_log").glob("*.json")).write_text("{")
    said = str(explained_as(lake, RuntimeError()))
    assert f"ingest {SOURCE} --from-scratch --apply" in commands_in(said)


@pytest.mark.parametrize(
    ("file", "subject", "command"),
    [
        (
            f"bronze/{SOURCE}/event_date=2026-01-01/a.parquet",
            f"bronze/{SOURCE}",
            f"./stateful ingest {SOURCE} --from-scratch --apply",
        ),
        (
            f"tables/{STREAM.name}/a.parquet",
            f"tables/{STREAM.name}",
            f"./stateful rebuild {STREAM.name} --full-refresh --apply",
        ),
    ],
)
def test_a_file_that_the_error_names_is_named_with_what_mends_it(lake, file, subject, command):
    append(lake, days=1)
    error = RuntimeError(
        f"[FAILED_READ_FILE] at file:{lake.root}/{file}, bad page\n\tat org.apache"
    )
    said = explained_as(lake, error)
    assert (said.code, said.subject, said.command) == ("unreadable_table", subject, command)
    assert (f"{lake.root}/{file}" in said.message, "\n" in said.message) == (True, False)


NO_STATE = """[STREAM_FAILED] terminated: Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error
\tat org.apache
Caused by: java.io.EOFException
\tat java.base"""


def test_a_state_that_cannot_be_read_is_told_with_what_mends_it(lake, made):
    append_ops(lake, "batches", [{"stream": STREAM.name, "generation": 1, "batch_id": 5}])
    file = made.stores[0].changelog(6)
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(LakeError) as raised, explained(lake, STREAM):
        raise RuntimeError(NO_STATE)
    said = raised.value
    assert said.code == "unreadable_checkpoint"
    assert said.command == f"./stateful rebuild {STREAM.name} --apply"
