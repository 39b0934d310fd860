"""Whatever is produced, and wherever runs die: each message is in bronze or in quarantine, once."""

from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.ingest import kafka
from include.ingest.connector import ConnectorError
from include.ingest.ingest import ingest
from include.ingest.parse_files import Counts
from include.ingest.source_connector import waiting
from include.lake.paths import Lake
from tests.deaths import Dying, KilledError, MachineClock
from tests.examples import examples
from tests.ingested import bronze_of, quarantine_of
from tests.landed_files import START, signal
from tests.theirs import accept_lost, lost
from tests.topics import FakeTopic, of_topic, served
from tests.watermarks import HOUR
from tests.watermarks import SIGNALS as CLOCKED

pytestmark = pytest.mark.slow

SOURCE = of_topic(replace(CLOCKED, heartbeat_delay=5 * HOUR), commit_messages=4)
BAD = ("{", "[]", None, b"\xff", signal(0, value="x"))
bodies = st.builds(signal, st.integers(0, 9_000), st.integers(1, 2)) | st.sampled_from(BAD)
produced = st.tuples(st.just("produce"), st.integers(0, 2), bodies)
steps = st.lists(
    produced
    | produced
    | produced
    | st.tuples(st.just("mark"), st.integers(0, 2))
    | st.tuples(st.just("ingest"), st.none() | st.integers(0, 13)),
    max_size=25,
)


class World:
    """A lake and the topic that it takes; `sent` is what must be in it."""

    def __init__(self, root: str, patch: pytest.MonkeyPatch) -> None:
        self.lake, self.topic = Lake(root), served(patch)
        MachineClock(patch, START + 9 * HOUR)
        self.good: set[tuple[int, int]] = set()
        self.bad: set[tuple[int, int]] = set()

    def produce(self, partition: int, body: bytes | str | None) -> None:
        # Partitions are numbered without a gap.
        number = min(partition, len(self.topic.partitions))
        sent = self.topic.produce(number, body)
        (self.bad if body in BAD else self.good).add((number, sent.offset))

    def mark(self, partition: int) -> None:
        self.topic.mark(min(partition, len(self.topic.partitions)))

    def expire(self, partition: int, count: int) -> None:
        number = min(partition, len(self.topic.partitions) - 1)
        before = self.topic.earliest.get(number, 0) + count
        self.topic.expire(number, min(before, len(self.topic.partitions[number])))

    def skip(self) -> None:
        if lost(self.lake, SOURCE):
            accept_lost(self.lake, SOURCE)

    def ingest(self, dies_at: int | None) -> None:
        with pytest.MonkeyPatch.context() as patch, suppress(KilledError, ConnectorError):
            if dies_at is not None:
                Dying(patch, dies_at)
            ingest(self.lake, SOURCE, interval_end=START + 9 * HOUR)


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted(
        (row["kafka_partition"], row["kafka_offset"])
        for row in rows
        if row["kafka_partition"] is not None
    )


@pytest.mark.parametrize("size", [2, 50_000])
@examples(40)
@given(st.data())
def test_every_message_is_taken_once(size: int, data: st.DataObject):
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka, "MESSAGES_A_RANGE", size)
        world = World(root, patch)
        for name, *given_ in data.draw(steps):
            getattr(world, name)(*given_)
        world.ingest(None)
        assert places(bronze_of(world.lake)) == sorted(world.good)
        assert places(quarantine_of(world.lake)) == sorted(world.bad)
        assert waiting(world.lake, SOURCE) == 0
        assert ingest(world.lake, replace(SOURCE, heartbeat_delay=None)) == Counts()
        check_bodies(world.topic, bronze_of(world.lake))


losing = st.lists(
    produced
    | produced
    | st.tuples(st.just("ingest"), st.none() | st.integers(0, 13))
    | st.tuples(st.just("expire"), st.integers(0, 2), st.integers(0, 3))
    | st.tuples(st.just("skip")),
    max_size=25,
)


@examples(40)
@given(losing)
def test_what_expires_is_all_that_is_ever_missing(steps: list[Any]):
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        world = World(root, patch)
        for name, *given_ in steps:
            getattr(world, name)(*given_)
        world.ingest(None)
        world.skip()
        world.ingest(None)
        earliest = world.topic.earliest
        in_bronze, in_quarantine = places(bronze_of(world.lake)), places(quarantine_of(world.lake))
        assert len(set(in_bronze)) == len(in_bronze)
        assert len(set(in_quarantine)) == len(in_quarantine)
        missing = (world.good - set(in_bronze)) | (world.bad - set(in_quarantine))
        assert all(offset < earliest.get(p, 0) for p, offset in missing)
        assert set(in_bronze) <= world.good
        assert set(in_quarantine) <= world.bad
        assert waiting(world.lake, SOURCE) == 0


def check_bodies(topic: FakeTopic, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["is_heartbeat"]:
            continue
        message = topic.partitions[row["kafka_partition"]][row["kafka_offset"]]
        assert message is not None
        assert message.value is not None
        second = (row["event_time"] - START).total_seconds()
        assert message.value.decode() == signal(second, row["device_id"], row["value"])
        assert row["source_file"] == f"signals/{row['kafka_partition']}"
