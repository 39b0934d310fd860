"""The page of a key against the simulator's oracle, on lakes that real jobs have made."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from include.fold.admission import micros_of
from include.fold.arrow_values import plain_rows
from include.lake.delta_log import dataset_of
from include.observe import explain as key_replay
from include.observe.explain import KeyFigures, ShownOutput, key_of_text, read_key, text_of_key
from include.page.render import key_html
from include.page.stream_figures import newest_keys
from include.registry import stream_named
from include.stream.manifest import savepoints_of
from include.stream_definition import load_definition
from tests.refused import refused
from tests.simulator.kinds import Kind
from tests.simulator.operations import Operations, some_days
from tests.simulator.oracle import Folded, folded, stamped
from tests.simulator.sequences import days_in_time
from tests.simulator.shapes import Shape
from tests.simulator.world import open_world

pytestmark = pytest.mark.slow

MONTH = 30


@pytest.fixture(
    params=["silences", "counts_per_key", pytest.param("counts", marks=pytest.mark.full)]
)
def do(request: pytest.FixtureRequest) -> Iterator[Operations]:
    begun = some_days(request.param)
    operations = Operations(request.param)
    operations.world.go_on(begun)
    yield operations
    operations.close()


def look(do: Operations, key: str = "a", days: int = MONTH) -> KeyFigures:
    figures = read_key(do.world.lake, do.stream, key, do.world.now(), days)
    assert f"key {key}" in key_html(figures)
    return figures


def emitted(figures: KeyFigures) -> list[ShownOutput]:
    return [output for step in figures.steps for output in step.outputs]


def expected(do: Operations, until_us: int) -> Folded:
    """Fold all that has landed, late or not, in plain Python."""
    return folded(do.kind, "a", [each.row for each in stamped(do.world.commits)], until_us)


def count(state: str | None) -> int | None:
    return None if state is None else int(json.loads(state)["n"])


def expected_count(do: Operations, until_us: int) -> int | None:
    key = expected(do, until_us).keys.get(("a",))
    return None if key is None else key.n


def check(do: Operations, figures: KeyFigures) -> None:
    """The state and the outputs are those that the oracle has of the key."""
    assert figures.until is not None
    assert figures.state is not None
    until_us = micros_of(figures.until)
    assert count(figures.state.state) == expected_count(do, until_us)
    if do.kind != "counts_per_key":
        shown = [(values(each.text), micros_of(each.emitted_at)) for each in emitted(figures)]
        own = [(e.row, e.at_us) for e in expected(do, until_us).outputs if e.row[0] == "a"]
        assert sorted(shown) == sorted(own)


def values(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text).values())


def test_a_key_is_what_all_its_rows_make_of_it_late_ones_too(do):
    days_in_time(do)
    do.rebuild(None)  # of the rows of the first days some came late
    figures = look(do)
    check(do, figures)
    assert figures.failure is None
    late_before = figures.late

    do.land_late("a", [30, 31], 1)
    do.run(None)
    figures = look(do)
    check(do, figures)  # as a restatement would make it
    assert figures.late == late_before + 2
    late = [event for step in figures.steps for event in step.events if event.was_late]
    assert len(late) == figures.late


def test_a_shorter_time_begins_with_a_savepoint_and_comes_to_the_same_state(do):
    days_in_time(do)
    whole, short = look(do), look(do, days=1)
    assert whole.start == "the beginning"
    assert short.start.startswith("savepoint ")
    assert short.state == whole.state
    assert 0 < len(short.steps) < len(whole.steps)
    assert list(short.steps) == list(whole.steps)[: len(short.steps)]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("silences", [Kind("decimal(38,18)", "decimal(38,18)"), Kind("bool", "boolean")]),
        ("counts", [Kind("Instant", "timestamp"), Kind("str", "string").or_none()]),
        ("counts_per_key", [Kind("bytes", "binary").or_none(), Kind("Level", "int").or_none()]),
    ],
)
def test_any_key_of_the_table_is_found_by_its_text(kind, fields):
    shape = Shape(tuple(fields), key=tuple(range(len(fields))), retained=(("lasts", 0),), seed=1)
    do = Operations(kind, opened=open_world(shape=shape))
    try:
        do.some_days()
        do.rebuild(None)
        names = list(load_definition(do.stream).fold.keys.names)
        keys = plain_rows(dataset_of(do.world.lake.table(do.stream.name)).to_table(columns=names))
        texts = {text_of_key(key if len(names) > 1 else key[names[0]]) for key in keys}
        assert any(field.nullable for field in fields) <= any("null" in text for text in texts)
        for text in texts:
            figures = read_key(do.world.lake, do.stream, text, do.world.now(), MONTH)
            assert emitted(figures)
        big = newest_keys(do.world.lake, do.stream.name)
        assert {key["key"] for key in big.keys if big} <= texts
    finally:
        do.close()


def test_a_replay_of_too_many_steps_is_refused_as_its_state_is_not_that_of_now(do, monkeypatch):
    monkeypatch.setattr(key_replay, "MOST_STEPS", 3)
    with refused("too_much", subject="days"):
        look(do)


def test_what_is_no_key_is_said():
    fold = load_definition(stream_named("device_signals")).fold
    assert key_of_text(fold, "17") == 17
    with refused("wrong_argument", subject="key"):
        key_of_text(fold, "seventeen")
    with refused("wrong_argument", subject="key"):
        key_of_text(fold, "[" * 100_000)
    text = load_definition(stream_named("user_counts")).fold
    assert key_of_text(text, "17") == "17"


def test_of_mapped_states_it_begins_where_they_do():
    """No replay makes the states before it, and older savepoints have another schema."""
    operations = Operations("silences")
    try:
        days_in_time(operations)
        operations.migrate(None)
        days_in_time(operations)
        mapped = savepoints_of(operations.world.lake, operations.stream.name)
        schema = mapped[-1].state_schema
        figures = look(operations)
        firsts = [sp.until_us for sp in mapped if sp.state_schema == schema]
        assert len(firsts) < len(mapped)
        assert figures.steps
        assert min(micros_of(step.at) for step in figures.steps) >= min(firsts)
    finally:
        operations.close()
