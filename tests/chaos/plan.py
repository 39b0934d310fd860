"""The plan of a seed: its stream, records and actions, and the kills of its jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from include.settings import Source
from tests.simulator.actions import Action, actions
from tests.simulator.shapes import Shape
from tests.simulator.simulate import ANY_SHAPE, KIND_OF_STREAM, SOME_FEATURES
from tests.simulator.world import GROUPED, SOURCE

# Of the actions that a run of the simulator draws a step: so many for each file of the lake.
KILLED = 0.3
MOST_FILES = 120  # that a job writes, or nearly
TARGETS = ("all", "all", "all", "worker", "jvm")


@dataclass(frozen=True)
class Plan:
    """The plan of one seed."""

    number: int
    kind: str
    features: frozenset[str]
    shape: Shape
    actions: tuple[Action, ...]

    @property
    def source(self) -> Source:
        return GROUPED if "groups" in self.features else SOURCE

    @property
    def on_error(self) -> str:
        return "dead_letter" if "dead_letters" in self.features else "stop"


@dataclass(frozen=True)
class Kill:
    """Once so many files have appeared below the lake: of what processes."""

    target: str
    after_files: int


def plan_of(number: int, steps: int) -> Plan:
    """The same one each time. It begins with some ordinary days, and ends with a rebuild."""
    drawn: list[Plan] = []

    # The first example is always the simplest one.
    @seed(number)
    @settings(
        max_examples=3,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data(), features=SOME_FEATURES, kind=KIND_OF_STREAM, shape=ANY_SHAPE)
    def draw(data: st.DataObject, features: frozenset[str], kind: str, shape: Shape) -> None:
        # Who is killed between somebody's write to bronze and its being put back leaves it so.
        retained = actions(features - {"others"})
        between = data.draw(st.lists(retained, min_size=steps, max_size=steps))
        drawn.append(Plan(number, kind, features, shape, _framed(between)))

    draw()
    return drawn[-1]


def _framed(between: Sequence[Action]) -> tuple[Action, ...]:
    return (Action("some_days"), *between, Action("mend_by_rebuild"))


def kill_of(plan: Plan, step: int, job: int) -> Kill | None:
    """The kill during the job of that number, from 1, of a step's action."""
    chance = Random(f"{plan.number} {step} {job}")
    if chance.random() >= KILLED:
        return None
    return Kill(chance.choice(TARGETS), chance.randrange(1, MOST_FILES))
