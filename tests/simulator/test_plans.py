"""A plan before each of any operations: what it calls unchanged is right, and what it says mends it."""

from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from include.ingest.amendments import amendments_of
from include.stream.deploy_plan import DeployPlan, make_plan
from tests.examples import examples
from tests.faults.command_line import CommandLine
from tests.simulator.auditor import WrongError
from tests.simulator.cascade import Click, act, open_cascade
from tests.simulator.operations import REFUSALS
from tests.simulator.shapes import Shape
from tests.simulator.simulate import ANY_SHAPE, KIND_OF_STREAM, SOME_FEATURES, Simulation
from tests.simulator.world import SOURCE


class Plans(Simulation):
    """Operations on one stream; each fifth time, and at the end, its plan is applied."""

    done = 0

    @initialize(kind=KIND_OF_STREAM, features=SOME_FEATURES, shape=ANY_SHAPE)
    def open(self, kind: str, features: frozenset[str], shape: Shape) -> None:
        super().open(kind, features | {"changes", "delays"}, shape)

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        self.check_plan()
        self._operations.do(data.draw(self._actions))
        self.done += 1
        if self.done % 5 == 0:
            self.apply()

    def teardown(self) -> None:
        try:
            if hasattr(self, "_operations"):
                self.apply()
        finally:
            super().teardown()

    def plan(self) -> DeployPlan:
        return make_plan(self._operations.world.lake).only(self._operations.stream.name)

    def check_plan(self) -> None:
        """What is called unchanged equals the oracle, as the auditor sees, and nothing else is said of it."""
        (planned,) = self.plan().streams
        if planned.state == "unchanged":
            verdict = self._operations.auditor.check()
            if verdict is None or verdict.wrong or not verdict.live_is_right:
                raise WrongError(f"the plan calls it unchanged: {verdict}")

    def apply(self) -> None:
        """What the plan says mends it, whatever came before."""
        operations, world = self._operations, self._operations.world
        world.pass_time(timedelta(seconds=3))
        plan, name = self.plan(), operations.stream.name
        commands = CommandLine(lambda: world.engine)
        with commands.installed():
            chosen = f"apply {plan.plan_id} --only {name}"
            applied = commands.stateful(world.lake.root, chosen)
        world.note_repairs()
        (planned,) = plan.streams
        if planned.state == "cannot be":
            assert applied.code != 0
            return
        open_ = amendments_of(world.lake, SOURCE.name).open
        if applied.code and not (operations.harmed or open_):
            raise WrongError(f"{planned}: {applied.text}")
        if applied.code == 0:
            left = self.plan().steps
            if left and left[0].state != "new":  # of nothing in bronze there is no run
                raise WrongError(f"after {planned} the plan has {left}: {applied.text}")
        with suppress(*REFUSALS):
            operations.auditor.check()


TestPlans = Plans.TestCase
TestPlans.settings = settings(
    examples(10), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))]
)
def test_a_plan_of_a_chain_is_carried_out_in_its_order(seed):
    """Whatever came before, what was approved makes all three right, where each can be."""
    draw = Random(seed)
    with open_cascade() as world, CommandLine(lambda: world.engine).installed():
        world.land(Click("u", world.now_us, 1), Click("v", world.now_us, 2))
        world.settle()
        for _ in range(12):
            act(world, draw)
        world.settle()
        world.deploy(8 - world.factor)
        typed = partial(CommandLine(lambda: world.engine).stateful, world.lake.root)
        plan = make_plan(world.lake)
        found = [(each.stream, each.state, each.is_at_most) for each in plan.streams]
        upstream = [(name, "upstream", True) for name in "bc"]
        assert found == [("a", "new code", False), *upstream]
        applied = typed(f"apply {plan.plan_id}")
        assert applied.code == 0, applied.text
        world.check()
        assert make_plan(world.lake).exit_code == 0
        assert all(world.status(name).is_right for name in "abc")
