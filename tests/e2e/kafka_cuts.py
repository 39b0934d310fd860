"""A cut of ingestion from a real broker, by its seed: what is done where, and what must be there then."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from include.ingest.ingest import ingest
from include.ingest.kafka import TopicConnector
from include.ingest.parse_files import Counts, Outcome
from include.ingest.splits import ConnectorError, ReadSplit, Split
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.settings import Source
from spark_jobs.tables.landing import parsed_on
from tests.e2e.kafka_broker import Broker
from tests.e2e.kafka_ingest import HIT, Hit, kill
from tests.e2e.kafka_topics import (
    PRODUCERS,
    Place,
    Sent,
    going_on,
    is_poison,
    run_disturbed,
    run_killed,
)
from tests.faults.trial import EQUAL, MENDED, MISSED, Result
from tests.ingested import bronze_of, quarantine_of
from tests.theirs import accept_lost

PARTITIONS = 3
# Of a batch: its files, and its commits to the log and to both tables.
WRITES_A_BATCH = 5


class Cut(NamedTuple):
    """One cut: what is done, and where."""

    seed: int
    fault: str
    place: str  # "write" or "message"
    number: int  # of that, in the run that is disturbed
    batch: int  # messages
    count: int  # messages of each producer
    before: str  # the run before: "none", "whole" or "killed"
    is_producing: bool
    share: float  # of a partition's messages, where some expire

    @property
    def name(self) -> str:
        return f"cut {self.seed} | {self.fault}"


def cut_of(seed: int) -> Cut:
    """Draw the cut of a seed, the same each time."""
    random = Random(seed)
    names = list(FAULTS)
    fault, count = names[(seed - 1) % len(names)], random.randint(10, 60)
    batch = random.choice([25, 90, 10_000])
    batches = ceil(count * PRODUCERS / batch)
    place = random.choice(["write", "message"])
    most = WRITES_A_BATCH * batches if place == "write" else count * PRODUCERS
    before = random.choice(["none", "whole", "killed"])
    # Whoever produces to a topic that is made anew cannot say to which of both.
    is_producing = fault != "recreate" and random.random() < 0.5
    number = random.randrange(most)
    return Cut(seed, fault, place, number, batch, count, before, is_producing, random.random())


def run_cut(cut: Cut, lake: Lake, broker: Broker, spark: Callable[[], SparkSession]) -> Result:
    """Not reached, where the run had not so many writes or messages; AssertionError when not each
    message is in bronze or in quarantine, once."""
    began = time.monotonic()
    sent = Sent(broker, f"cut-{cut.seed}", PARTITIONS)
    world = World(cut, lake, sent, spark)
    world.go_before()
    sent.produce(cut.count)
    with going_on(sent, 10) if cut.is_producing else nullcontext():
        is_hit = FAULTS[cut.fault](world)
    ended = world.settle()
    lost = world.check()
    seconds = round(time.monotonic() - began, 1)
    told = f"{len(sent.all):,} messages, {lost} lost"
    return Result(cut.name, cut.fault, ended if is_hit else MISSED, told, seconds)


@dataclass
class World:
    """A topic and the lake that takes it."""

    cut: Cut
    lake: Lake
    sent: Sent
    spark: Callable[[], SparkSession]
    gone: frozenset[Place] = frozenset()  # whose messages the topic has no more
    old: Mapping[Place, str] = field(default_factory=dict)  # of the topic that it has been before
    read: frozenset[Place] = frozenset()  # what the disturbed run had read, and went on to write
    is_begun: bool = True  # by then: what is gone before was never the lake's

    def source(self) -> Source:
        return self.sent.source(commit_messages=self.cut.batch)

    def go_before(self) -> None:
        if self.cut.before == "none":
            return
        self.sent.produce(self.cut.count)
        if self.cut.before == "whole":
            ingest(self.lake, self.source())
        else:
            run_killed(self.lake, self.sent, *self._where_killed(), "--batch", self.batch)

    def _where_killed(self) -> tuple[str, str]:
        random, messages = Random(self.cut.seed + 0.5), self.cut.count * PRODUCERS
        if random.random() < 0.5:
            return "--message", str(random.randrange(messages))
        return "--write", str(random.randrange(WRITES_A_BATCH * ceil(messages / self.cut.batch)))

    @property
    def batch(self) -> str:
        return str(self.cut.batch)

    def disturbed(self, *what: object) -> bool:
        """A run that is disturbed so; whether it came to that."""
        cut = self.cut
        where = [f"--{cut.place}", str(cut.number), "--batch", self.batch, "--timeout-s", "3"]
        run = run_disturbed(self.lake, self.sent, *where, "--do", *map(str, what))
        assert "Traceback" not in run.stderr, run.stderr
        hits = [line for line in run.stdout.splitlines() if line.startswith(HIT)]
        for line in hits:
            hit = Hit(*json.loads(line.removeprefix(HIT)))
            self.is_begun = hit.is_begun
            for partition, first, until in hit.read:
                self.read |= {(partition, offset) for offset in range(first, until)}
        return bool(hits)

    def settle(self) -> str:
        """The next run, and what it asks for."""
        try:
            ingest(self.lake, self.source())
        except ConnectorError as error:
            if error.code != "lost_input":
                raise
            accept_lost(self.lake, self.source())
            ingest(self.lake, self.source())
            return MENDED
        return EQUAL

    def check(self) -> int:
        """The number of messages that are lost, as the fault has taken them; of no others."""
        taken, sent = taken_of(self.lake), Counter(map(identity, self.sent.all))
        assert not taken - sent, f"taken twice, or never sent: {taken - sent}"
        missing = (sent - taken).keys()
        assert missing <= self.may_be_lost(), f"lost: {missing - self.may_be_lost()}"
        self._check_told(len(missing))
        assert ingest(self.lake, self.source()) == Counts()
        return len(missing)

    def may_be_lost(self) -> set[object]:
        """The messages that were gone before the run had read them."""
        bodies = self.old or self.sent.bodies
        return {identity(bodies[place]) for place in self.gone - self.read}

    def _check_told(self, missing: int) -> None:
        """Lost messages are in findings; nobody knows how many a deleted topic had."""
        if not self.is_begun:
            return
        found = read_ops(self.lake, "findings").to_pylist()
        counts = [row["count"] for row in found if row["finding"] == "rows_skipped"]
        said = f"{missing} lost, but {counts} said to be"
        if self.old:
            assert counts or not missing, said
            assert sum(counts) <= missing, said
        else:
            assert sum(counts) == missing, said


def identity(body: str) -> object:
    """The identity of a message, by the columns that the tables have of it."""
    if is_poison(body):
        return body
    values = json.loads(body)
    return values["device_id"], values["value"]


def taken_of(lake: Lake) -> Counter[object]:
    good = ((row["device_id"], row["value"]) for row in bronze_of(lake))
    return Counter([*good, *(row["raw"] for row in quarantine_of(lake))])


# What is done to a run


def kill_process(world: World) -> bool:
    return world.disturbed("kill")


def kill_broker(world: World) -> bool:
    broker = world.sent.broker
    try:
        return world.disturbed("kill", broker.pid)
    finally:
        if not broker.is_running:
            broker.start()


def add_partitions(world: World) -> bool:
    is_hit = world.disturbed("add", PARTITIONS + 2)
    if is_hit:
        for partition in (PARTITIONS, PARTITIONS + 1):
            world.sent.produce(5, partition)
    return is_hit


def expire(world: World) -> bool:
    partition = world.cut.seed % PARTITIONS
    offsets = [offset for number, offset in list(world.sent.bodies) if number == partition]
    before = ceil(len(offsets) * world.cut.share)
    is_hit = world.disturbed("expire", partition, before)
    if is_hit:
        world.gone = frozenset((partition, offset) for offset in range(before))
    return is_hit


def recreate(world: World) -> bool:
    is_hit = world.disturbed("recreate", PARTITIONS)
    if is_hit:
        world.old = dict(world.sent.bodies)
        world.gone = frozenset(world.old)
        world.sent.bodies.clear()
        world.sent.produce(world.cut.count)
    return is_hit


def kill_task(world: World) -> bool:
    marker = Path(world.lake.root) / "killed_task"
    parts = world.cut.count * PRODUCERS // PARTITIONS
    reader = TopicConnector.reader

    def dying(*given: Any) -> ReadSplit:
        return DyingRead(reader(*given), str(marker), world.cut.number % min(parts, 8))

    with pytest.MonkeyPatch.context() as patch, suppress(PySparkException, Py4JJavaError):
        patch.setattr(TopicConnector, "reader", dying)
        parse = parsed_on(world.spark())
        ingest(world.lake, world.source(), parse=parse)
    return marker.exists()


class DyingRead(NamedTuple):
    """Kills the worker that reads it at that message; not the one that tries again."""

    read: ReadSplit
    marker: str
    number: int

    def __call__(self, split: Split) -> Iterator[Outcome]:
        for index, outcome in enumerate(self.read(split)):
            if index == self.number:
                with suppress(FileExistsError):
                    Path(self.marker).touch(exist_ok=False)
                    kill(os.getpid())
            yield outcome


FAULTS: dict[str, Callable[[World], bool]] = {
    "process": kill_process,
    "broker": kill_broker,
    "task": kill_task,
    "partitions": add_partitions,
    "recreate": recreate,
    "expire": expire,
}
