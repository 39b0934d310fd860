"""Starts by arrival: what waits in a lake, and a model of Airflow that loses events and holds runs back."""

from dataclasses import dataclass, field
from dataclasses import replace as changed

from hypothesis import given
from hypothesis import strategies as st

from include.ingest.ingest import ingest
from include.lake.paths import Lake
from include.observe import arrival
from include.observe.arrival import AGAIN_SECONDS, Memory, Waiting, look, look_twice
from include.registry import source_named, stream_named
from spark_jobs.run_stream import drain
from tests.dags import land
from tests.examples import examples
from tests.simulator.live_model import LiveModel
from tests.simulator.local_engine import LocalEngine

SECONDS = 60.0
COUNTS, SESSIONS = stream_named("user_counts"), stream_named("user_sessions")
LINE = '{"user_id": "a", "event_type": "x", "value": 1.0, "event_time": "2026-03-01T00:00:00Z"}'


@dataclass
class World:
    """A stream's source and Dag, look by look: all that lands is to be folded, and few runs are to be for nothing."""

    landed: int = 0
    ingested: int = 0
    folded: int = 0
    looks: int = 0
    is_queued: bool = False
    memory: Memory = field(default_factory=Memory)
    asked: int = 0
    reasons: int = 0  # for which there may be a start at once

    def look(self, *, is_quiet: bool = True, is_paused: bool = False) -> None:
        self.looks += 1
        waiting = self.landed - self.ingested
        found = Waiting(self.ingested, waiting, is_quiet) if self.landed > self.folded else None
        if self.memory.is_due(found, self.looks * SECONDS):
            self.asked += 1
            self.is_queued |= not is_paused  # Airflow drops an event of a paused Dag

    def do(self, action: str, number: int) -> None:
        self.reasons += action != "look"
        match action:
            case "land":
                self.landed += number
            case "another stream ingests":
                self.ingested = self.landed
            case "the triggerer dies":
                self.memory = Memory()
            case "the run fails in ingest":
                self.is_queued = False
            case "the run fails behind it" if self.is_queued:
                self.is_queued, self.ingested = False, self.landed
            case "the run succeeds":
                self.succeed()

    def succeed(self) -> None:
        if self.is_queued:
            self.is_queued, self.ingested, self.folded = False, self.landed, self.landed


ACTIONS = st.sampled_from(
    [
        "look",
        "land",
        "another stream ingests",
        "the triggerer dies",
        "the run fails in ingest",
        "the run fails behind it",
        "the run succeeds",
    ]
)
STEP = st.tuples(ACTIONS, st.integers(1, 3), st.booleans(), st.booleans())


@examples(1_000)
@given(st.lists(STEP, max_size=60))
def test_nothing_that_has_come_is_left_and_nothing_is_asked_for_without_end(steps):
    world = World()
    for action, number, is_quiet, is_paused in steps:
        world.do(action, number)
        world.look(is_quiet=is_quiet, is_paused=is_paused)
    while_it_waits = world.looks * SECONDS / AGAIN_SECONDS
    assert world.asked <= 1 + world.reasons + while_it_waits
    # From now on all is well: in the time of one repetition the last has been folded.
    for _ in range(round(AGAIN_SECONDS / SECONDS) + 1):
        world.look()
        world.succeed()
    assert world.folded == world.landed
    before = world.asked
    world.look()
    assert world.asked == before


def test_one_file_a_look_is_a_start_a_look():
    world = World()
    for number in range(1, 6):
        world.do("land", 1)
        world.look()
        assert world.asked == number
        world.succeed()


def test_a_burst_is_one_start_at_its_end_and_what_never_ends_a_start_every_other_look():
    burst = World()
    for is_quiet in (False, True, True):
        burst.do("land", 10 if burst.looks < 2 else 0)
        burst.look(is_quiet=is_quiet)
    assert burst.asked == 1
    endless = World()
    for _ in range(10):
        endless.do("land", 10)
        endless.look(is_quiet=False)
        endless.succeed()
    assert endless.asked == 5


def test_what_one_stream_has_ingested_waits_for_the_other_until_it_is_folded(lake: Lake):
    assert look(lake, [COUNTS, SESSIONS]) == {}
    land(lake, LINE)
    land(lake, LINE, file="more.jsonl")
    assert look(lake, [COUNTS, SESSIONS]) == dict.fromkeys(
        ("user_counts", "user_sessions"), Waiting(0, 2)
    )
    ingest(lake, source_named("user_events"))
    drain(LocalEngine(LiveModel()), lake, COUNTS)
    assert look(lake, [COUNTS, SESSIONS]) == {"user_sessions": Waiting(2, 0)}
    drain(LocalEngine(LiveModel()), lake, SESSIONS)
    assert look(lake, [COUNTS, SESSIONS]) == {}


def test_a_stream_that_cannot_be_read_blinds_no_other(lake: Lake, caplog):
    land(lake, LINE)
    assert set(look(lake, [changed(COUNTS, source="none", name="broken"), SESSIONS])) == {
        "user_sessions"
    }
    assert "broken" in caplog.text


def test_what_comes_between_two_looks_is_no_quiet(lake: Lake, monkeypatch):
    land(lake, LINE)
    monkeypatch.setattr(arrival.time, "sleep", lambda _: None)
    assert look_twice(lake, [COUNTS]) == {"user_counts": Waiting(0, 1, is_quiet=True)}
    monkeypatch.setattr(arrival.time, "sleep", lambda _: land(lake, LINE, file="more.jsonl"))
    assert look_twice(lake, [COUNTS]) == {"user_counts": Waiting(0, 2, is_quiet=False)}
