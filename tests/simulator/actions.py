"""The actions on a stream, how often each is drawn, and with which arguments."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.fault_model import Fault

DAYS = 4  # how far back rows come late, and backfills reach

KEYS = st.sampled_from(["a", "b"])
HOURS = st.integers(0, DAYS * 24)
VALUES = st.integers(0, 3)
EDGES = st.integers(0, 5)  # which of the spans that a shape has
# Mostly to its end; else killed before that write.
KILLS = st.integers(-80, 30).map(lambda write: write if write > 0 else None)
# One that is cut off between its steps is what the next operation has to understand.
REBUILD_KILLS = st.integers(-20, 20).map(lambda write: write if write > 0 else None)
PARTS = st.sampled_from(["table", "checkpoint", "table", "checkpoint", "savepoints", "ops"])
# What a backup of the lake holds of a stream. Bronze is its source's.
OF_STREAM = ("table", "checkpoint", "savepoints", "ops")
CARED = st.sampled_from(["table", "bronze"])


@dataclass(frozen=True)
class Action:
    """A method of `Operations`, and its arguments."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({given})"


ARGUMENTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "land_in_time": {
        "key": KEYS,
        "ago": st.lists(st.integers(0, 9), min_size=1, max_size=4),
        "value": VALUES,
    },
    "land_tied": {"key": KEYS, "values": st.lists(VALUES, min_size=1, max_size=3)},
    "land_on_edge": {
        "key": KEYS,
        "value": VALUES,
        "edge": EDGES,
        "around_us": st.sampled_from([0, 0, 1, -1]),
    },
    "complete_on_edge": {
        "key": KEYS,
        "other": KEYS,
        "edge": EDGES,
        "around_ms": st.sampled_from([0, 0, 1, -1]),
    },
    "land_late": {"key": KEYS, "ago": st.lists(HOURS, min_size=1, max_size=3), "value": VALUES},
    "land_ahead": {"key": KEYS, "ahead": st.integers(1, 50)},
    "land_meanwhile": {
        "before_write": st.integers(1, 20),
        "job": st.sampled_from(
            ["run", "run", "rebuild", "rewind", "backfill", "compact", "savepoint"]
        ),
        "key": KEYS,
        "ago": HOURS,
    },
    "cut_off": {
        "job": st.sampled_from(["rebuild", "rebuild", "rewind", "rescale", "run", "backfill"]),
        "kill": st.integers(2, 10),
        "then": st.sampled_from(
            [
                "run",
                "compact",
                "savepoint",
                "backfill",
                "rebuild_after_backfill",
                "rebuild",
                "rescale",
                "rewind",
            ]
        ),
        "ago": HOURS,
    },
    "land_of_one": {"key": KEYS, "hours": st.integers(1, 4)},
    "land_far_ahead": {"key": KEYS, "hours": st.sampled_from([2, 30, 200])},
    "pass_time": {"span": st.sampled_from([5, 30, 60, 240, 1440])},
    "heartbeat": {},
    "run": {"kill": KILLS},
    "run_other": {"kill": KILLS},
    "compact": {"kill": KILLS},
    "savepoint": {"kill": KILLS},
    "backfill": {"ago": HOURS, "span": st.sampled_from([1, 3, 24]), "kill": KILLS},
    "rebuild_after_backfill": {"kill": KILLS},
    "rebuild": {"kill": REBUILD_KILLS},
    "rescale": {"kill": REBUILD_KILLS, "buckets": st.integers(1, 3)},
    "full_refresh": {"kill": REBUILD_KILLS},
    "rewind": {"kill": REBUILD_KILLS, "ago": HOURS},
    "migrate": {"kill": REBUILD_KILLS},
    "mend_by_rebuild": {},
    "set_watermark": {"kill": KILLS, "ago": st.sampled_from([0, 5, 30, 240])},
    "change_delay": {"minutes": st.sampled_from([0, 10, 60, 600])},
    "usual_delay": {},
    "deploy": {"variant": st.sampled_from(["a", "b", "c", "d"])},
    "deploy_failing": {},
    "back_up": {},
    "put_back_stream": {},
    "put_back": {"part": st.sampled_from(["table", "checkpoint"])},
    "lose": {"part": PARTS},
    "power_cut": {},
    "two_lives": {
        "part": st.sampled_from(["bronze", "stream"]),
        "job": st.sampled_from(
            ["run", "rebuild", "compact", "savepoint", "backfill", "set_watermark"]
        ),
        "runs": st.lists(st.booleans(), min_size=2, max_size=2),
    },
    "write_to": {"part": st.sampled_from(["table", "dead_letters"])},
    "write_to_bronze": {
        "job": st.sampled_from(
            ["run", "rebuild", "rewind", "backfill", "compact", "savepoint", "set_watermark"]
        ),
        "ago": HOURS,
    },
    "optimize": {"part": CARED},
    "clean_log": {"part": CARED},
}
WEIGHTS = {
    "run": 6,
    "land_in_time": 4,
    "land_late": 4,
    "land_tied": 3,
    "land_on_edge": 4,
    "complete_on_edge": 2,
    "backfill": 3,
    "land_meanwhile": 3,
    "cut_off": 4,
    "pass_time": 3,
    "rebuild": 3,
    "rewind": 2,
    "compact": 2,
    "put_back": 3,
    "back_up": 3,
    "put_back_stream": 2,
    "lose": 2,
    "deploy": 2,
    "deploy_failing": 2,
    "land_of_one": 3,
    "migrate": 2,
    "write_to_bronze": 2,
    "two_lives": 2,
}
# The row of the fault model that each of them tries.
TRIED = {
    Fault.ANY_ORDER: (
        "land_in_time land_tied land_on_edge complete_on_edge land_ahead land_meanwhile "
        "land_of_one pass_time heartbeat"
    ),
    Fault.LATE: "land_late",
    Fault.KILLED: (
        "cut_off run run_other compact savepoint backfill rebuild_after_backfill rebuild rescale "
        "full_refresh rewind migrate"
    ),
    Fault.CLOCK: "land_far_ahead set_watermark",
    Fault.OTHER_TIMES: "mend_by_rebuild put_back lose two_lives",
    Fault.CHANGED: "change_delay usual_delay deploy deploy_failing",
    Fault.STREAM_OF_ONE_TIME: "back_up put_back_stream",
    Fault.UNREADABLE: "power_cut",
    Fault.OTHERS: "write_to write_to_bronze",
    Fault.MAINTENANCE: "optimize clean_log",
}
FAULTS = {name: fault for fault, names in TRIED.items() for name in names.split()}
# Of these a simulation has some, or none: a lake that is always being harmed never gets far.
FEATURES = {
    "others": {"write_to", "write_to_bronze"},
    "harm": {"back_up", "put_back", "lose", "power_cut", "two_lives"},
    "restores": {"back_up", "put_back_stream"},
    "changes": {"deploy", "migrate"},
    "dead_letters": {"deploy_failing"},
    "clocks": {"land_far_ahead", "set_watermark"},
    "delays": {"change_delay", "usual_delay"},
    "maintenance": {"optimize", "clean_log"},
    "groups": {"land_of_one"},
}
NAMES = [name for name in ARGUMENTS for _ in range(WEIGHTS.get(name, 1))]


def actions(features: frozenset[str]) -> st.SearchStrategy[Action]:
    """Any action but those of features that are left out."""
    left_out = set().union(*(FEATURES[name] for name in FEATURES.keys() - features))
    names = [name for name in NAMES if name not in left_out]
    return st.sampled_from(names).flatmap(
        lambda name: st.fixed_dictionaries(ARGUMENTS[name]).map(lambda given: Action(name, given))
    )
