"""The state machine: any sequence of actions, shrunk to the shortest one that goes wrong."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.simulator.actions import FEATURES, Action, actions
from tests.simulator.operations import Operations
from tests.simulator.shapes import FLAT, Shape, shapes
from tests.simulator.stream_files import KINDS
from tests.simulator.world import GROUPED, SOURCE, open_world

KIND_OF_STREAM = st.sampled_from(KINDS)
ANY_SHAPE = st.just(FLAT) | shapes() | shapes()
SOME_FEATURES = st.frozensets(st.sampled_from(sorted(FEATURES)))


class Simulation(RuleBasedStateMachine):
    """One stream, from a few ordinary days on."""

    @initialize(kind=KIND_OF_STREAM, features=SOME_FEATURES, shape=ANY_SHAPE)
    def open(self, kind: str, features: frozenset[str], shape: Shape) -> None:
        on_error = "dead_letter" if "dead_letters" in features else "stop"
        source = GROUPED if "groups" in features else SOURCE
        self._operations = Operations(kind, on_error, open_world(source=source, shape=shape))
        self._actions = actions(features)
        self._operations.some_days()

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        action: Action = data.draw(self._actions)
        self._operations.do(action)

    def teardown(self) -> None:
        if hasattr(self, "_operations"):
            self._operations.close()
