"""A world for each test that asks for one."""

from collections.abc import Iterator

import pytest

from tests.simulator.world import World, open_world


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as made:
        yield made
