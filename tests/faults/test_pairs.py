"""Two drivers of one stream in processes of their own: one of the pairs, and what stops the first."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import pairs
from tests.faults.__main__ import on_spark, try_rows
from tests.faults.command_line import Told
from tests.faults.trial import WRONG

# Makes three files, and a fourth one when it is told to.
PROGRAM = """
import sys
from pathlib import Path
folder = Path(sys.argv[1])
for number in range(3):
    (folder / str(number)).touch()
sys.stdin.read()
(folder / "last").touch()
"""
REFUSED = 'error: another job works on stream-a: {"pid": 1}. Wait for it to end (lease_taken)'


def started(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def end_of_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def test_a_process_stands_still_after_so_many_files_and_goes_on(tmp_path):
    with pairs.watched(tmp_path) as changes:
        process = started(tmp_path)
        with pairs.standing_still(process, tmp_path, changes) as first:
            assert first.stop_after(3) in [f"file 3: {number}" for number in range(3)]
            end_of_input(process)
            assert not (tmp_path / "last").exists()
            assert first.go_on() == 0
    assert (tmp_path / "last").exists()


def test_one_that_ends_before_is_not_stopped(tmp_path):
    with pairs.watched(tmp_path) as changes:
        process = started(tmp_path)
        end_of_input(process)
        with pairs.standing_still(process, tmp_path, changes) as first:
            assert first.stop_after(5) is None
            assert first.files == 4
            assert first.code == 0


@pytest.mark.parametrize(
    ("told", "is_one"),
    [
        pytest.param(Told(2, f"INFO\n{REFUSED}\ndo what the error says"), True, id="one line"),
        pytest.param(Told(1, REFUSED), False, id="another code"),
        pytest.param(Told(2, f"{REFUSED}\n{REFUSED}"), False, id="two lines"),
        pytest.param(Told(2, f"{REFUSED}\n`./stateful set-aside x`"), False, id="advice on damage"),
        pytest.param(Told(2, "error: no such stream"), False, id="another reason"),
    ],
)
def test_a_refusal_names_who_is_at_work_and_nothing_else(told, is_one):
    assert pairs.is_refusal(told) == is_one


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.spark
def test_a_pair_leaves_every_row_right(tmp_path):
    results = try_rows([pairs.pair_of(1)], on_spark(), tmp_path / "results", pairs.result_of)
    assert [result for result in results if result.ended == WRONG] == []
