"""What a topic loses is loud, with its count and the way out; and the way out goes on exactly there."""

from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from include.cli.__main__ import load
from include.cli.app import main
from include.ingest.ingest import ingest, landing_lag, why_not_ingest
from include.ingest.parse_files import Counts
from include.lake.paths import Lake
from include.streams import sources
from tests.ingested import SIGNALS, bronze_of, other_findings, quarantine_of
from tests.landed_files import Landing, signal
from tests.refused import refused
from tests.theirs import ACCEPT, accept_lost, lost
from tests.topics import FakeTopic, of_topic

pytestmark = pytest.mark.slow

SOURCE = of_topic()
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def offsets_of(lake: Lake) -> list[tuple[int, int]]:
    return sorted((row["kafka_partition"], row["kafka_offset"]) for row in bronze_of(lake))


def produce(topic: FakeTopic, count: int, partition: int = 0) -> None:
    for number in range(count):
        topic.produce(partition, signal(number))


def test_what_expired_before_the_first_run_is_no_loss(lake: Lake, topic: FakeTopic):
    produce(topic, 5)
    topic.expire(0, 3)
    assert ingest(lake, SOURCE).rows_bronze == 2
    assert lost(lake, SOURCE) is None


def test_where_a_partition_was_begun_with_is_kept_though_it_was_empty(lake: Lake, topic: FakeTopic):
    ingest(lake, SOURCE)
    produce(topic, 5)
    topic.expire(0, 3)
    with refused("lost_input", subject="signals", command=ACCEPT):
        ingest(lake, SOURCE)


def test_expired_offsets_stop_until_they_are_skipped(lake: Lake, topic: FakeTopic):
    produce(topic, 2)
    ingest(lake, SOURCE)
    produce(topic, 5)
    topic.expire(0, 4)
    for _ in range(2):
        with refused("lost_input", subject="signals", command=ACCEPT):
            ingest(lake, SOURCE)
    assert why_not_ingest(lake, SOURCE, None, NOW) is None  # the run is to say so
    assert accept_lost(lake, SOURCE).lost == 2
    assert ingest(lake, SOURCE).rows_bronze == 3
    assert offsets_of(lake) == [(0, 0), (0, 1), (0, 4), (0, 5), (0, 6)]
    (found,) = other_findings(lake)
    assert (found["finding"], found["count"]) == ("rows_skipped", 2)
    assert lost(lake, SOURCE) is None


def test_the_command_shows_what_is_lost_and_goes_on_when_it_is_told_to(
    lake: Lake, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sources, "SOURCES", (SOURCE,))
    load()
    ingest(lake, SOURCE)
    command = ["ingest", "signals", "--accept-loss", "--lake", lake.root]
    assert main(command) == 0
    assert lost(lake, SOURCE) is None
    produce(topic, 3)
    topic.expire(0, 2)
    version = DeltaTable(lake.ingest_log("signals")).version()
    assert main(command) == 0
    assert DeltaTable(lake.ingest_log("signals")).version() == version
    assert main([*command, "--apply"]) == 0
    assert ingest(lake, SOURCE).rows_bronze == 1
    monkeypatch.setattr(sources, "SOURCES", (SIGNALS,))
    assert main(command) == 2
    with refused("wrong_argument", subject="signals"):
        lost(lake, SIGNALS)


def test_a_topic_made_anew_stops_until_it_is_begun_with(lake: Lake, topic: FakeTopic):
    produce(topic, 3)
    topic.produce(0, "{")
    ingest(lake, SOURCE)
    topic.make_anew("second")
    produce(topic, 3)
    topic.produce(0, "{")
    with refused("lost_input", subject="signals", command=ACCEPT):
        ingest(lake, SOURCE)
    accept_lost(lake, SOURCE)
    assert ingest(lake, SOURCE) == Counts(1, 1, 3, 1)
    assert offsets_of(lake) == [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (0, 2)]
    assert len({row["quarantine_id"] for row in quarantine_of(lake)}) == 2


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_partition_that_lost_its_end_or_is_gone_stops_until_it_is_gone_on_with(
    lake: Lake, topic: FakeTopic, is_gone: bool
):
    produce(topic, 1)
    produce(topic, 5, partition=1)
    ingest(lake, SOURCE)
    if is_gone:
        del topic.partitions[1]
    else:
        del topic.partitions[1][3:]
    with refused("lost_input", subject="signals", command=ACCEPT):
        ingest(lake, SOURCE)
    accept_lost(lake, SOURCE)
    assert ingest(lake, SOURCE) == Counts()
    produce(topic, 2)
    assert ingest(lake, SOURCE).rows_bronze == 2


def test_a_topic_made_anew_while_it_is_read_gives_nothing(
    lake: Lake, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
):
    produce(topic, 1)
    monkeypatch.setattr(topic, "id", lambda: "second")
    with refused("lost_input", subject="signals", command=ACCEPT):
        ingest(lake, SOURCE)
    assert bronze_of(lake) == []


# The clock


def test_an_open_transaction_is_not_taken_and_holds_the_clock_back(lake: Lake, topic: FakeTopic):
    produce(topic, 3)
    topic.stable[0] = 2
    assert ingest(lake, SOURCE).rows_bronze == 2
    assert landing_lag(lake, SOURCE) is not None
    assert why_not_ingest(lake, SOURCE, None, NOW) is not None
    del topic.stable[0]
    assert landing_lag(lake, SOURCE) is not None
    assert ingest(lake, SOURCE).rows_bronze == 1
    assert landing_lag(lake, SOURCE) is None


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
        ingest(lake, SOURCE)
    other = Lake(f"{lake.root}/other")
    ingest(other, SOURCE)
    with refused("settings_changed", subject="signals"):
        ingest(other, SIGNALS)
