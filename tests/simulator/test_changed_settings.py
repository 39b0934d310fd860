"""The settings of a stream's entry change, and little else: its state was made with the former ones."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from include import stream_definition
from include.coverage.table_coverage import table_coverage
from include.lake.generations import read_generations
from include.plans.reseed_options import ReseedOptions
from spark_jobs.reseed_stream import reseed
from tests.refused import refused_until
from tests.simulator.steps import land, run
from tests.simulator.world import World

# Who takes the first rule that fits goes by their order.
BY_RULES = '''
"""Which rule fits each key"""
from typing import NamedTuple
from include.fold.definition import flat_map_groups_with_state
class Landed(NamedTuple):
    key: str
    event_time_us: int
class Known(NamedTuple):
    n: int
class Row(NamedTuple):
    key: str
    what: str
def define(*, rules):
    def fold(key, events, state):
        for _ in events:
            state.update(Known(1))
            fitting = (str(kind) for kind, begin in rules.items() if key.startswith(begin))
            yield Row(key, next(fitting))
    return flat_map_groups_with_state(
        fold, key="key", event=Landed, state=Known, output=Row, output_mode="append")
COMMENTS = {"key": "Whose", "what": "Its rule"}
'''
GENERAL_LAST, GENERAL_FIRST = {"vip": "ab", "any": "a"}, {"any": "a", "vip": "ab"}


def deploy(world: World, rules: dict[object, str]) -> None:
    world.configure("counts", settings={"rules": rules})
    world.put_file("counts", BY_RULES)


def lived(world: World, rules: dict[object, str]) -> None:
    deploy(world, rules)
    for _ in range(4):
        land(world, [("ab", 0, 1)], 60)
    run(world, "counts")
    assert table_coverage(world.lake, world.streams["counts"]).coverage.live_is_right
    land(world, [("ab", 0, 1)], 60)


@pytest.mark.parametrize(
    ("before", "after"), [(GENERAL_LAST, GENERAL_FIRST), ({2: "a"}, {"2": "a"})]
)
def test_a_dict_in_another_order_or_with_other_keys_is_another_setting(world, before, after):
    lived(world, before)
    deploy(world, after)
    with refused_until("reseed sim_counts"):
        run(world, "counts")


def test_it_is_told_as_other_code_where_an_earlier_release_would_have_written_the_same(world):
    lived(world, GENERAL_FIRST)
    deploy(world, GENERAL_LAST)
    run(world, "counts")
    assert not table_coverage(world.lake, world.streams["counts"]).coverage.live_is_right


def test_a_stream_of_an_earlier_release_goes_on_and_is_of_other_code_until_a_reseed(world):
    with pytest.MonkeyPatch.context() as then:
        then.setattr(stream_definition, "settings_text", text_of_then)
        lived(world, GENERAL_LAST)
    run(world, "counts")
    stream = world.streams["counts"]
    assert not table_coverage(world.lake, stream).coverage.live_is_right
    reseed(world.engine, world.lake, stream, ReseedOptions())
    run(world, "counts")
    assert table_coverage(world.lake, stream).is_right
    row = read_generations(world.lake, "sim_counts").current
    assert row is not None
    assert row["settings"] == """{"rules": [["'vip'", "ab"], ["'any'", "a"]]}"""


def text_of_then(stream: str, settings: Mapping[str, Any], pinned: str | None = None) -> str:
    return json.dumps(settings, sort_keys=True)
