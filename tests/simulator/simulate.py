"""Simulate operations by many seeds: `make simulate SEEDS=100 [FIRST=...]`.

    python -m tests.simulator.simulate --seeds 100 --first 1 [--jobs 2]

Each seed is some ten simulations of up to sixty actions, shrunk and shown when one goes wrong; the
same seed replays it.
"""

import sys
import time
import warnings
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import tests.conftest  # noqa: F401  (the environment of the tests)
from tests.simulator.actions import FEATURES, Action, actions
from tests.simulator.operations import DONE, Operations
from tests.simulator.shapes import FLAT, Shape, shapes
from tests.simulator.stream_files import KINDS
from tests.simulator.world import GROUPED, SOURCE, open_world

SETTINGS = settings(
    max_examples=10,
    stateful_step_count=60,
    deadline=None,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)
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


def main() -> int:
    args = parse_args()
    began = time.monotonic()
    done, found = Counter[str](), ""
    for seed, taken, failure in results(args):
        done.update(taken)
        found = found or failure
        say(f"seed {seed}: {taken.total():,} actions{f', WRONG: {failure}' * bool(failure)}")
    seconds = time.monotonic() - began
    say(f"{sum(done.values()):,} actions in {seconds:,.0f} s: {dict(done.most_common())}")
    return 1 if found else 0


def parse_args() -> Namespace:
    parser = ArgumentParser(description="Simulate operations by many seeds.")
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first one")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    return parser.parse_args()


def results(args: Namespace) -> Iterator[tuple[int, Counter[str], str]]:
    """Each seed with its actions, and the failure it came to (none: empty)."""
    seeds = range(args.first, args.first + args.seeds)
    with ProcessPoolExecutor(args.jobs) as pool:
        for done in as_completed([pool.submit(one_seed, seed) for seed in seeds]):
            yield done.result()


def one_seed(seed: int) -> tuple[int, Counter[str], str]:
    """The simulations of one seed."""
    before, failure = Counter(DONE), ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run_state_machine_as_test(_machine(seed), settings=SETTINGS)
        except Exception as error:  # noqa: BLE001  (whatever it comes to is what is looked for)
            notes = "\n".join(getattr(error, "__notes__", []))
            failure = f"seed {seed}: {type(error).__name__}: {error}\n{notes}"
    return seed, Counter(DONE) - before, failure


def _machine(seed: int) -> Any:
    machine = type("Simulation", (Simulation,), {})
    machine._hypothesis_internal_use_seed = seed  # what @seed sets, which takes functions only
    return machine


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
