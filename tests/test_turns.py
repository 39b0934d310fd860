"""The tests that take turns: each commit leaves out those of the others, and three run them all."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def collected() -> dict[str, set[str]]:
    return {turn: _collected(turn) for turn in ("", "--turn=0", "--turn=1", "--turn=5")}


def _collected(turn: str) -> set[str]:
    files = ("tests/operations/test_recompute.py", "tests/engines/test_rich_records_on_spark.py")
    files += ("tests/care/test_compact_state.py", "tests/care/test_inspect_state.py")
    options = ["--collect-only", "-q", "-m", "e2e and not full", *([turn] if turn else [])]
    command = [sys.executable, "-m", "pytest", *options, *files]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line for line in printed.splitlines() if "::" in line}


def test_three_turns_run_all_and_each_some(collected: dict[str, set[str]]):
    every, *turns = collected.values()
    assert set.union(*turns) == every
    assert all(turn < every for turn in turns)


def test_what_takes_no_turn_is_always_run(collected: dict[str, set[str]]):
    of_file = {turn: {t for t in tests if "test_inspect" in t} for turn, tests in collected.items()}
    assert of_file["--turn=0"]
    assert len({frozenset(tests) for tests in of_file.values()}) == 1
