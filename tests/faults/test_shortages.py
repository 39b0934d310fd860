"""Real jobs whose memory is too short: some of the rows, and what counts as being told so."""

import pytest

from include.short_memory import of_exit_code, short_memory
from tests.faults import shortages
from tests.faults.__main__ import on_spark, try_rows
from tests.faults.command_line import Told
from tests.faults.matrix import Row
from tests.faults.trial import WRONG

HEAP = f"error: {of_exit_code(3)}"
WORKER = f"error: {short_memory('Python worker exited unexpectedly (crashed)')}"


@pytest.mark.parametrize(
    ("fault", "text", "is_told"),
    [
        pytest.param(shortages.HEAP, f"INFO\n{HEAP}\nadvice", True, id="the heap"),
        pytest.param(shortages.WORKER_KILLED, WORKER, True, id="a worker"),
        pytest.param(shortages.WORKER_KILLED, HEAP, False, id="another memory"),
        pytest.param(shortages.HEAP, f"{HEAP}\n{HEAP}", False, id="two lines"),
        pytest.param(shortages.HEAP, f"{HEAP}\n`./stateful set-aside x`", False, id="damage"),
        pytest.param(shortages.HEAP, "12:00:00 ERROR Executor: lost", False, id="no line"),
    ],
)
def test_whose_memory_it_was_is_told_in_one_line(fault, text, is_told):
    assert shortages.is_of_memory(fault, Told(1, text)) == is_told


def test_all_rows_have_names_of_their_own():
    names = [row.name for row in shortages.rows()]
    assert len(set(names)) == len(names) == 110


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.spark
def test_a_job_without_memory_says_so_and_the_next_one_makes_all_rows_right(tmp_path):
    rows = [
        Row("user_counts", "batch", shortages.HEAP, "12 MB left"),
        Row("device_signals", "reseed", shortages.WORKER_KILLED, "call 20"),
        Row("device_signals", "batch", shortages.WORKER_MEMORY, "call 1"),
    ]
    results = try_rows(rows, on_spark(), tmp_path / "results", shortages.result_of)
    assert [result for result in results if result.ended == WRONG] == []
