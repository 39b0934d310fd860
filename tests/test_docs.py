"""The examples of docs/streams.md behave as it says; modules shown as commands exist."""

import re
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import yaml

from include.fold.definition import flat_map_groups_with_state, map_groups_with_state
from include.fold.records import columns_of
from include.fold.testing.cases import run
from include.fold.testing.check import BrokenLawError, check_fold
from include.registry import source_named
from include.settings import PROJECT
from include.stream_definition import check_stream
from tests.compose import SERVICES

PAGE = (PROJECT / "docs" / "streams.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for its_language, text in found if its_language == language]


def defined(word: str) -> dict[str, Any]:
    """Return the names of the block with that word, after the imports that the page begins with."""
    imports, *others = blocks("python")
    (text,) = [text for text in others if word in text]
    names: dict[str, Any] = {"__name__": "streams_page"}
    exec(imports, names)
    exec(text, names)
    return names


@pytest.mark.slow
def test_the_tests_of_the_example_pass():
    names = defined("def test_")
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 2
    for name in tests:
        names[name]()


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


def spend(user_id, purchases, state):
    before = state.getOption or Spent(0.0, 0)
    total = before.total + sum(purchase.value for purchase in purchases)
    state.update(Spent(total, before.purchases + 1))
    return project(user_id, state.get)


def project(user_id, spent):
    return Spending(user_id, *spent)


@pytest.mark.slow
def test_a_function_that_counts_calls_fails_with_the_text_of_the_page():
    fold = map_groups_with_state(
        spend,
        key="user_id",
        event=Purchase,
        state=Spent,
        output=Spending,
        output_mode="update",
        project=project,
    )
    with pytest.raises(BrokenLawError) as raised:
        check_fold(fold)
    assert f"{raised.value}\n" == blocks("")[0]


def test_the_example_with_timeouts_and_settings_does_what_it_says():
    names = defined("class Click")
    click = names["Click"]
    clicks = [click("ann", 1_000), click("ann", 6_000), click("bob", 11_000)]
    ran = run(names["define"](after=timedelta(milliseconds=5)), clicks)
    assert ran.outputs == [names["Gone"]("ann", 6_000)]
    assert ran.emitted_at_us == [11_000]
    assert set(ran.states) == {"bob"}
    check_stream(names["STREAM"], source_named(names["STREAM"].source))


@pytest.mark.slow
def test_a_cart_is_reminded_and_expires_as_the_page_says():
    names = defined("setTimer")
    fold = flat_map_groups_with_state(
        names["remind"],
        key="cart_id",
        event=names["CartEvent"],
        state=names["Cart"],
        output=names["Notice"],
        output_mode="append",
        timeout="EventTimeTimeout",
        timers=("reminder", "expiry"),
    )
    event, hour_us = names["CartEvent"], 3_600_000_000
    first, second = event("c", hour_us, False), event("c", 2 * hour_us - 1, False)
    ran = run(fold, [first, second], clock=8 * 24 * hour_us)
    # Timers that are given in milliseconds are whole ones.
    assert [row.notice for row in ran.outputs] == ["reminder", "expiry"]
    assert ran.emitted_at_us == [3 * hour_us - 1_000, (7 * 24 + 1) * hour_us]
    assert (ran.states, ran.timers) == ({}, {})
    ordered = run(fold, [first, event("c", hour_us + 1, True)], clock=8 * 24 * hour_us)
    assert (ordered.outputs, ordered.timers) == ([], {})
    check_fold(fold, may_keep=True, examples=30)


def test_the_records_of_the_page_have_the_types_of_its_table():
    kinds = {column.name: column.kind for column in columns_of(defined("class Order")["Order"])}
    item = "struct<sku:string,price:decimal(12,2)>"
    assert kinds["items"].replace(" ", "").replace("`", "") == f"array<{item}>"
    assert kinds["status"] == "string"


def test_the_checks_of_the_page_are_right():
    check_stream(defined("few_at_once")["STREAM"], source_named("user_events"))


def test_the_mount_of_ones_own_streams_is_for_services_that_there_are():
    (text,) = blocks("yaml")
    services = yaml.safe_load(text)["services"]
    assert services.keys() <= SERVICES.keys()
    assert {name for name in SERVICES if name.startswith("airflow")} - services.keys() == {
        "airflow-init"
    }


def test_each_module_that_is_shown_as_a_command_is_one():
    pages = [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]
    shown = {
        name
        for page in pages
        for name in re.findall(r"-m ((?:include|tests)\.[\w.]+)", page.read_text())
    }
    assert "include.cli" in shown
    for name in sorted(shown):
        path = PROJECT / name.replace(".", "/")
        main = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        assert '__name__ == "__main__"' in main.read_text(), name
