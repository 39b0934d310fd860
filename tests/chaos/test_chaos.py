"""One seed of chaos, of few steps."""

import pytest

from tests.chaos import __main__ as chaos
from tests.chaos.plan import plan_of


@pytest.mark.e2e
@pytest.mark.spark
def test_a_seed_is_killed_and_right():
    result = chaos.run_seed(plan_of(2, steps=4))
    assert result.wrong == ""
    assert result.kills["all"]
