"""How a job that fails ends: with its cause in the last line, and of Spark no more than is asked for."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from include.job import TOO_BUSY, exit_with_main
from include.lake.delta_log import AGAIN
from include.lake.errors import LakeError
from tests.open_files import no_more_files

WORKER = """Traceback (most recent call last):
  File "/lake/include/streams/spending.py", line 41, in add_purchases
    total += purchase.value
include.fold.calls.StateFunctionError: add_purchases failed for key 'ann': TypeError: no number"""
JAVA = "\n\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)" * 100
OF_USER = f"An exception was thrown from the Python worker:\n{WORKER}\n\nJVM stacktrace:{JAVA}\n"
OF_MACHINE = f"org.apache.spark.SparkException: Python worker failed to connect back.{JAVA}\n"


def said_of(error: Exception, capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        exit_with_main(fail)
    return ended.value.code, capsys.readouterr().err.splitlines()


def test_on_a_terminal_a_failure_is_the_function_s_own_lines_and_a_file_has_all(
    monkeypatch, capsys, tmp_path
):
    log = tmp_path / "log"
    monkeypatch.setenv("SPARK_LOG_FILE", str(log))
    code, lines = said_of(RuntimeError(OF_USER), capsys)
    assert code == 1
    assert lines[:2] == WORKER.splitlines()[1:3]
    cause = "error: StateFunctionError: add_purchases failed for key 'ann': TypeError: no number"
    assert (len(lines), lines[2].startswith(cause), str(log) in lines[2]) == (3, True, True)
    assert log.read_text().count("\tat ") == 100


def test_what_cannot_be_had_just_now_is_one_line_with_its_cause_and_what_to_do(tmp_path, capsys):
    write_deltalake(tmp_path, pa.table({"n": [1]}))
    with no_more_files(), pytest.raises(OSError) as raised:
        DeltaTable(tmp_path)
    code, lines = said_of(raised.value, capsys)
    assert code == 1
    assert f"{tmp_path}/_delta_log/" in lines[-1]
    assert ("os error 24" in lines[-1], lines[-1].endswith(AGAIN)) == (True, True)


def test_a_damaged_file_is_not_said_to_be_well(tmp_path, capsys):
    write_deltalake(tmp_path, pa.table({"n": [1]}))
    max((tmp_path / "_delta_log").glob("*.json")).write_text("{")
    with pytest.raises(DeltaError) as raised:
        DeltaTable(tmp_path)
    assert AGAIN not in said_of(raised.value, capsys)[1][-1]


def test_a_log_has_all_and_the_cause_last(monkeypatch, capsys):
    monkeypatch.delenv("SPARK_LOG_FILE", raising=False)
    lines = said_of(RuntimeError(OF_MACHINE), capsys)[1]
    assert len(lines) > 100
    assert lines[-1].startswith(f"error: {TOO_BUSY}")


def test_what_is_not_of_spark_keeps_its_traceback(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("SPARK_LOG_FILE", str(tmp_path / "log"))
    lines = said_of(KeyError("rows"), capsys)[1]
    assert lines[0].startswith("Traceback")
    assert "in fail" in "".join(lines)
    code, (line,) = said_of(LakeError("no lake"), capsys)
    assert (code, line.endswith("(unreadable_lake)")) == (2, True)
