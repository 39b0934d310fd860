"""What docs/testing.md and docs/streams.md show is what happens."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from include.fold.definition import map_groups_with_state
from include.fold.testing.cases import run
from include.fold.testing.check import BrokenLawError, check_fold
from include.stream_definition import load_definition

pytestmark = pytest.mark.slow

PAGE_FOLDER = Path(__file__).parents[1] / "docs"
PAGE = (PAGE_FOLDER / "testing.md").read_text()
RECORDS = """
from collections.abc import Iterator
from typing import NamedTuple

from include.fold.group_state import GroupState

class Purchase(NamedTuple):
    user_id: str
    event_time_us: int
    value: float

class Spent(NamedTuple):
    total: float
    purchases: int

class Spending(NamedTuple):
    user_id: str
    total: float
    purchases: int

def project(user_id: str, spent: Spent) -> Spending:
    return Spending(user_id, *spent)
"""


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for its_language, text in found if its_language == language]


def block_of_streams_page(word: str) -> str:
    page = (PAGE_FOLDER / "streams.md").read_text()
    found = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return next(text for text in found if word in text)


def defined(*sources: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "testing_page"}
    for source in sources:
        exec(source, names)
    return names


def test_the_tests_of_the_example_pass():
    names = defined(blocks("python")[0])
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 2
    for name in tests:
        names[name]()


def test_the_wrong_example_is_told_as_the_page_says():
    names = defined(RECORDS, blocks("python")[1])
    fold = map_groups_with_state(
        names["spend"],
        key="user_id",
        event=names["Purchase"],
        state=names["Spent"],
        output=names["Spending"],
        output_mode="update",
        project=names["project"],
    )
    with pytest.raises(BrokenLawError) as raised:
        check_fold(fold)
    assert f"{raised.value}\n" == blocks("")[0]


def test_the_fold_over_nested_records_adds_up_as_the_page_says():
    names = defined(block_of_streams_page("Basket"))
    items = (names["Item"]("tea", Decimal("1.10")), None)
    order = names["Order"]("DE", 7, names["Status"].PAID, items, 1_000)
    ran = run(names["FOLD"], [order, order._replace(event_time_us=2_000)])
    assert ran.outputs == [("DE", 7, {"tea": Decimal("2.20")})]
    check_fold(names["FOLD"], examples=30)


def test_a_payment_that_is_delivered_again_is_spent_once_as_the_page_says():
    names = defined(block_of_streams_page("Deduplicate"))
    stream, payment = names["STREAM"], names["Payment"]
    fold = load_definition(stream).fold
    first = payment("ann", 36_000_000_000, "p1", 150)  # 10:00
    later = [
        first._replace(event_time_us=36_000_000_000 + us) for us in (3_000_000_000, 6_000_000_000)
    ]
    ran = run(fold, [first, *later])
    assert (ran.outputs, ran.duplicates) == ([("ann", 300)], 1)
    check_fold(fold, examples=30)


def test_a_cart_is_reminded_and_expires_as_the_page_says():
    names = defined(block_of_streams_page("setTimer"))
    event, hour_us = names["CartEvent"], 3_600_000_000
    first, second = event("c", hour_us, False), event("c", 2 * hour_us - 1, False)
    ran = run(names["FOLD"], [first, second], clock=8 * 24 * hour_us)
    # Timers that are given in milliseconds are whole ones.
    assert [row.notice for row in ran.outputs] == ["reminder", "expiry"]
    assert ran.emitted_at_us == [3 * hour_us - 1_000, (7 * 24 + 1) * hour_us]
    assert (ran.states, ran.timers) == ({}, {})
    ordered = run(names["FOLD"], [first, event("c", hour_us + 1, True)], clock=8 * 24 * hour_us)
    assert (ordered.outputs, ordered.timers) == ([], {})
    check_fold(names["FOLD"], may_keep=True, examples=30)


def test_each_module_that_is_shown_as_a_command_is_one():
    root = PAGE_FOLDER.parent
    pages = [root / "README.md", *PAGE_FOLDER.glob("*.md")]
    shown = {
        name
        for page in pages
        for name in re.findall(r"-m ((?:include|tests)\.[\w.]+)", page.read_text())
    }
    assert "include.cli" in shown
    for name in sorted(shown):
        path = root / name.replace(".", "/")
        main = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        assert '__name__ == "__main__"' in main.read_text(), name
