"""The settings of a stream's entry change, and little else: its state was made with the former ones."""

import pytest

from include.coverage.table_coverage import table_coverage
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
