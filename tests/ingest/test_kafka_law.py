"""Whatever is produced, and wherever runs die: each message is in bronze or in quarantine, once."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from include.cli.__main__ import load
from include.cli.app import main
from include.ingest import kafka
from include.ingest.ingest import ingest, landing_lag, why_not_ingest
from include.ingest.parse_files import Counts
from include.ingest.source_connector import plan_loss, waiting
from include.ingest.splits import ConnectorError
from include.lake.paths import Lake
from include.streams import sources
from tests.deaths import Dying, KilledError, MachineClock
from tests.examples import examples
from tests.ingested import SIGNALS, bronze_of, other_findings, quarantine_of
from tests.landed_files import START, Landing, signal
from tests.refused import refused
from tests.theirs import ACCEPT, accept_lost, stop_until_accepted
from tests.topics import FakeTopic, of_topic, served
from tests.watermarks import HOUR
from tests.watermarks import SIGNALS as WITH_HEARTBEAT

pytestmark = pytest.mark.slow

SOURCE = of_topic(replace(WITH_HEARTBEAT, heartbeat_delay=5 * HOUR), commit_messages=4)
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
        if plan_loss(self.lake, SOURCE):
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


# Losses, one by one


PLAIN = of_topic()
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def offsets_of(lake: Lake) -> list[tuple[int, int]]:
    return sorted((row["kafka_partition"], row["kafka_offset"]) for row in bronze_of(lake))


def produce(topic: FakeTopic, count: int, partition: int = 0) -> None:
    for number in range(count):
        topic.produce(partition, signal(number))


def test_what_expired_before_the_first_run_is_no_loss(lake: Lake, topic: FakeTopic):
    produce(topic, 5)
    topic.expire(0, 3)
    assert ingest(lake, PLAIN).rows_bronze == 2
    assert plan_loss(lake, PLAIN) is None


def test_where_a_partition_was_begun_with_is_kept_though_it_was_empty(lake: Lake, topic: FakeTopic):
    ingest(lake, PLAIN)
    produce(topic, 5)
    topic.expire(0, 3)
    with refused("lost_input", subject="signals", command=ACCEPT):
        ingest(lake, PLAIN)


def test_the_command_shows_what_is_lost_and_goes_on_when_it_is_told_to(
    lake: Lake, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sources, "SOURCES", (PLAIN,))
    load()
    ingest(lake, PLAIN)
    command = ["ingest", "signals", "--accept-loss", "--lake", lake.root]
    assert main(command) == 0
    assert plan_loss(lake, PLAIN) is None
    produce(topic, 3)
    topic.expire(0, 2)
    version = DeltaTable(lake.ingest_log("signals")).version()
    assert main(command) == 0
    assert DeltaTable(lake.ingest_log("signals")).version() == version
    assert why_not_ingest(lake, PLAIN, None, NOW) is None  # the run is to say so
    assert main([*command, "--apply"]) == 0
    (found,) = other_findings(lake)
    assert (found["finding"], found["count"]) == ("rows_skipped", 2)
    assert ingest(lake, PLAIN).rows_bronze == 1
    assert plan_loss(lake, PLAIN) is None
    monkeypatch.setattr(sources, "SOURCES", (SIGNALS,))
    assert main(command) == 2
    with refused("wrong_argument", subject="signals"):
        plan_loss(lake, SIGNALS)


def test_a_topic_made_anew_stops_until_it_is_begun_with(lake: Lake, topic: FakeTopic):
    produce(topic, 3)
    topic.produce(0, "{")
    ingest(lake, PLAIN)
    topic.make_anew("second")
    produce(topic, 3)
    topic.produce(0, "{")
    stop_until_accepted(lake, PLAIN)
    assert ingest(lake, PLAIN) == Counts(1, 1, 3, 1)
    assert offsets_of(lake) == [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (0, 2)]
    assert len({row["quarantine_id"] for row in quarantine_of(lake)}) == 2


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_partition_that_lost_its_end_or_is_gone_stops_until_it_is_gone_on_with(
    lake: Lake, topic: FakeTopic, is_gone: bool
):
    produce(topic, 1)
    produce(topic, 5, partition=1)
    ingest(lake, PLAIN)
    if is_gone:
        del topic.partitions[1]
    else:
        del topic.partitions[1][3:]
    stop_until_accepted(lake, PLAIN)
    assert ingest(lake, PLAIN) == Counts()
    produce(topic, 2)
    assert ingest(lake, PLAIN).rows_bronze == 2


def test_a_topic_made_anew_while_it_is_read_gives_nothing(
    lake: Lake, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
):
    produce(topic, 1)
    monkeypatch.setattr(topic, "id", lambda: "second")
    with refused("lost_input", subject="signals", command=ACCEPT):
        ingest(lake, PLAIN)
    assert bronze_of(lake) == []


# The watermark


def test_an_open_transaction_is_not_taken_and_holds_the_watermark_back(
    lake: Lake, topic: FakeTopic
):
    produce(topic, 3)
    topic.stable[0] = 2
    assert ingest(lake, PLAIN).rows_bronze == 2
    assert landing_lag(lake, PLAIN) is not None
    assert why_not_ingest(lake, PLAIN, None, NOW) is not None
    del topic.stable[0]
    assert landing_lag(lake, PLAIN) is not None
    assert ingest(lake, PLAIN).rows_bronze == 1
    assert landing_lag(lake, PLAIN) is None


def test_each_batch_takes_the_same_part_of_each_partition(lake: Lake, topic: FakeTopic):
    produce(topic, 40)
    produce(topic, 4, partition=1)
    assert ingest(lake, of_topic(commit_messages=11)).batches == 4
    by_commit: dict[datetime, list[int]] = {}
    for row in bronze_of(lake):
        by_commit.setdefault(row["ingested_at"], []).append(row["kafka_partition"])
    assert [parts.count(1) for _, parts in sorted(by_commit.items())] == [1, 1, 1, 1]


def test_a_source_does_not_change_where_it_comes_from(
    lake: Lake, landed: Landing, topic: FakeTopic
):
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    with refused("settings_changed", subject="signals"):
        ingest(lake, PLAIN)
    other = Lake(f"{lake.root}/other")
    ingest(other, PLAIN)
    with refused("settings_changed", subject="signals"):
        ingest(other, SIGNALS)
