"""The rehearsal of an upgrade: what it runs by whom, what it makes of what was said, and its way on one Spark."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from include.lake.paths import Lake
from spark_jobs.engines.spark_engine import SparkEngine
from tests.upgrades import __main__ as rehearsal
from tests.upgrades.__main__ import Outcome, Step, carry_out, last_line, rehearsed, steps_of, table
from tests.upgrades.environment import like_ours, record_checksums
from tests.upgrades.way import STREAMS, WAY, Walker, wrong_of

OTHER = Path("/other")


def test_the_way_changes_hands_and_the_older_lakes_are_gone_on_with_by_the_new_one():
    steps = list(steps_of(OTHER, ["tests/engines"]))
    assert [step.project == OTHER for step in steps] == [True, *(part.is_new for part in WAY), True]
    assert steps[-1].words[-1] == "tests/engines"
    assert {part.is_new for part in WAY} == {True, False}
    assert WAY[-1].is_compared


def test_after_a_part_that_went_wrong_no_other_of_the_way_is_gone(tmp_path, monkeypatch):
    tried = []

    def carry(step: Step, log: Path, spark: str) -> Outcome:
        tried.append(step.says)
        return Outcome(step, step.says != WAY[1].says, "said", 1)

    monkeypatch.setattr(rehearsal, "carry_out", carry)
    outcomes = list(rehearsed(steps_of(OTHER, ["tests/engines"]), tmp_path, "4.2.9"))
    assert tried == ["lakes of older releases", WAY[0].says, WAY[1].says, "tests"]
    lost = [outcome for outcome in outcomes if outcome.said == "not reached"]
    assert [outcome.step.says for outcome in lost] == [part.says for part in WAY[2:]]
    assert not any(outcome.is_right for outcome in lost)
    lines = table(outcomes, "4.2.9 with 4.4.9")
    assert "4.2.9 with 4.4.9" in lines[1]
    assert [("WRONG" in line) for line in lines[1:4]] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("....\n25 passed in 3.0s\n", 0, "25 passed in 3.0s"),
        ("..F\n==== 1 failed, 24 passed in 3.0s ====\n", 1, "1 failed, 24 passed in 3.0s"),
        (
            "noise\nwrong: a: differs\nwrong: b: differs\n",
            1,
            "wrong: a: differs; wrong: b: differs",
        ),
        ("Traceback\n  at\nValueError: no\n\n", 1, "ValueError: no"),
        ("noise of Spark\n", 0, "as it must be"),
        ("", -9, "exit code -9"),
    ],
)
def test_what_a_step_came_to_is_said_in_a_line(text, code, said):
    assert last_line(text, code) == said


def test_a_step_is_run_in_its_project_by_its_python(tmp_path, monkeypatch):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "a_step.py").write_text(
        "import os, sys; print(os.getcwd(), os.environ['SPARK_UNTRIED'], *sys.argv[1:])"
        "; sys.exit('PYTHONPATH' in os.environ)"
    )
    monkeypatch.setenv("PYTHONPATH", "/of/another/project")
    outcome = carry_out(Step("a", tmp_path, ["a_step", "x"]), tmp_path / "said", "4.9.9")
    assert outcome.is_right
    assert (tmp_path / "said").read_text() == f"{tmp_path} 4.9.9 x\n"


def test_of_what_another_delta_brings_its_own_jars_are_taken(tmp_path):
    names = ["io.delta_delta-spark_4.3_2.13-4.5.0.jar", "io.delta_delta-storage-4.5.0.jar"]
    others = ["org.slf4j_slf4j-api-2.0.13.jar", "io.delta_delta-iceberg_4.3_2.13-4.5.0.jar"]
    (tmp_path / ".jars").mkdir()
    (tmp_path / "include").mkdir()
    jars = [tmp_path / ".jars" / name for name in names + others]
    for jar in jars:
        jar.touch()
    assert [jar.name for jar in like_ours(jars)] == names
    record_checksums(tmp_path)
    lines = (tmp_path / "include" / "jars.sha256").read_text().splitlines()
    assert {line.split()[1] for line in lines} == {*names, *others}


def test_a_release_that_is_none_is_said_in_a_line(monkeypatch, tmp_path):
    ran = SimpleNamespace(returncode=1, stdout="", stderr="no matching distribution")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ran)
    with pytest.raises(SystemExit, match="no matching distribution"):
        rehearsal.pip(tmp_path, "install", "pyspark==9.9.9", is_checked=True)


@pytest.mark.spark
@pytest.mark.full
def test_the_way_comes_to_sql_and_a_table_that_does_not_is_found(spark, lake: Lake):
    """Up to where batches that were cut off are finished, on one Spark."""
    walker = Walker(SparkEngine(spark), lake)
    for part in WAY[:4]:
        part.walk(walker)
        assert wrong_of(walker, part) == []
    for file in Path(lake.landing(STREAMS[0].source)).glob("9-*"):
        file.unlink()
    found = wrong_of(walker, WAY[3])
    assert any("the table differs from SQL" in line for line in found)
