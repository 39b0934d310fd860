"""Offsets of a topic: which were taken, which come next, which are lost, and where to go on behind these.

The position has ranges of offsets where that of landed files has their names. A partition goes on
where the newest batch that names it ends. So a loss is passed over by a batch of no rows, which
says where to go on (accept_loss.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple

from include.lake.findings import Finding
from include.landing.batch import Batch, Position
from include.landing.connector import Cut, GoesOn, OriginError, ReadPart, come_meanwhile
from include.origins import KafkaTopic
from include.settings import Source
from include.text_table import counted

# What is read in one piece: of a backlog, all cores and workers read some.
MESSAGES_A_RANGE = 50_000
# To tell whether a second process is worth its start.
BYTES_A_MESSAGE = 200


class OffsetRange(NamedTuple):
    """Offsets of a partition, from `first` to before `until`; not each need have a message."""

    topic: str
    partition: int
    first: int
    until: int

    @property
    def name(self) -> str:
        """As the position has it."""
        return f"{self.topic}/{self.partition}/{self.first}-{self.until}"


def range_named(name: str) -> OffsetRange:
    """The other way round. A topic's name has no slash."""
    topic, partition, offsets = name.split("/")
    first, until = offsets.split("-")
    return OffsetRange(topic, int(partition), int(first), int(until))


class Offsets(NamedTuple):
    """Where a partition begins and ends."""

    earliest: int
    settled: int  # the end of what no open transaction can still change: what can be taken
    end: int


class TopicState(NamedTuple):
    """A topic when somebody looked: the id that it got when it was made, and its partitions."""

    id: str  # empty: its brokers give none
    partitions: Mapping[int, Offsets]


class Loss(NamedTuple):
    """Why what comes next in a partition cannot be taken, and where it would go on."""

    partition: int
    offsets: int | None  # the number of those that nobody can take any more; None: nobody knows
    why: str
    goes_on_at: int


def next_offsets(position: Position) -> dict[int, int]:
    """Where each partition that any batch has named goes on."""
    found: dict[int, int] = {}
    for _, parts in groupby(position.parts, key=lambda part: part.batch):
        found |= _ends([part.name for part in parts])
    return found


def _ends(names: Sequence[str]) -> dict[int, int]:
    ends: dict[int, int] = {}
    for wanted in map(range_named, names):
        ends[wanted.partition] = max(wanted.until, ends.get(wanted.partition, 0))
    return ends


def newest_id(position: Position) -> str | None:
    """The id of the topic or table that the newest batch was taken of; None before the first."""
    return position.parts[-1].origin_id if position.parts else None


def losses(state: TopicState, position: Position) -> list[Loss]:
    """What has been lost since the last batch."""
    if not position.parts:
        return []  # whatever expired before was never ours
    of = _of_same_topic if newest_id(position) == state.id else _of_another_topic
    return list(of(state, next_offsets(position)))


def _of_another_topic(state: TopicState, nexts: Mapping[int, int]) -> Iterator[Loss]:
    for partition in sorted(nexts.keys() | state.partitions.keys()):
        offsets = state.partitions.get(partition)
        why = f"it was taken until {nexts.get(partition, 0)} of a topic that was made anew since"
        yield Loss(partition, None, why, 0 if offsets is None else offsets.earliest)


def _of_same_topic(state: TopicState, nexts: Mapping[int, int]) -> Iterator[Loss]:
    for partition in sorted(nexts.keys() | state.partitions.keys()):
        taken = nexts.get(partition, 0)  # one that was added is taken from its beginning
        offsets = state.partitions.get(partition)
        if offsets is None:
            if not taken:
                continue
            yield Loss(partition, None, f"it was taken until {taken}, and is gone", 0)
        elif offsets.earliest > taken:
            count = offsets.earliest - taken
            why = f"{taken} is next, but it begins at {offsets.earliest}: {count} have expired"
            yield Loss(partition, count, why, offsets.earliest)
        elif offsets.end < taken:
            why = f"it was taken until {taken}, but ends at {offsets.end}: the brokers lost what "
            yield Loss(partition, None, f"{why}came since", offsets.end)


def count_of(lost: Sequence[Loss]) -> int:
    """How many offsets are known to be lost."""
    return sum(loss.offsets or 0 for loss in lost)


def told(origin: KafkaTopic, lost: Sequence[Loss]) -> str:
    """Losses, for people."""
    parts = "; ".join(f"partition {loss.partition}: {loss.why}" for loss in lost)
    return f"topic {origin.topic} has lost {counted(count_of(lost), 'offset')} that nobody had taken ({parts})"


@dataclass(frozen=True)
class TopicConnector:
    """The connector of a topic."""

    source: Source
    origin: KafkaTopic

    @cached_property
    def state(self) -> TopicState:
        """The topic when it was first looked at."""
        from include.landing import kafka_client  # which reads by this module

        return kafka_client.open_topic(self.origin).state()

    def cut(self, done: Position) -> Cut:
        self._refuse_other_topic(done)
        if lost := losses(self.state, done):
            raise OriginError(
                f"{told(self.origin, lost)}. Nothing is ingested. To go on behind what is lost",
                subject=self.source.name,
                command=f"./stateful ingest {self.source.name} --accept-loss --apply",
            )
        waiting = self._waiting(done)
        total = sum(until - first for first, until in waiting.values())
        if not total and done.parts:
            return Cut({}, self.state.id)
        # The same part of each: a partition that is far ahead would make the rows of others late.
        ranges = (
            OffsetRange(self.origin.topic, partition, first, first + self._share(size, total))
            for partition, (first, until) in waiting.items()
            for size in [until - first]
            # The first batch says where each partition was begun with.
            if size or not done.parts
        )
        pieces = sorted((r.name, r) for each in ranges for r in _pieces(each))
        sizes = {name: (r.until - r.first) * BYTES_A_MESSAGE for name, r in pieces}
        return Cut(sizes, self.state.id)

    def _refuse_other_topic(self, position: Position) -> None:
        """Not all brokers give topics ids, by which another would be told."""
        if not position.parts or newest_id(position) != self.state.id:
            return
        taken = range_named(position.parts[-1].name).topic
        if taken != self.origin.topic:
            raise OriginError(
                f"source {self.source.name} was taken of topic {taken}, and its entry says "
                f"{self.origin.topic}, to which those offsets say nothing. Nothing is ingested: put "
                f"topic={taken!r} back, and take the other in under a source of another name",
                code="settings_changed",
                subject="topic",
            )

    def _waiting(self, position: Position) -> dict[int, tuple[int, int]]:
        nexts = next_offsets(position)
        found = {}
        for partition, offsets in self.state.partitions.items():
            first = nexts.get(partition, 0 if position.parts else offsets.earliest)
            found[partition] = (first, max(first, offsets.settled))
        return found

    def _share(self, size: int, total: int) -> int:
        most = self.origin.commit_messages
        return size if total <= most else -(-size * most // total)

    def waiting(self, done: Position) -> int:
        """The offsets that no batch has; at least 1 where a run has something to say."""
        if not done.parts or losses(self.state, done):
            return 1 + sum(each.settled - each.earliest for each in self.state.partitions.values())
        return sum(until - first for first, until in self._waiting(done).values())

    def is_little(self, done: Position) -> bool:
        return self.waiting(done) <= self.origin.spark_messages

    def why_behind(self, done: Position) -> str | None:
        if more := come_meanwhile(self.waiting(done), "message", self.origin.place):
            return more
        # What it holds is not seen, and may be older.
        is_open = any(each.settled < each.end for each in self.state.partitions.values())
        return f"a transaction is open in {self.origin.place}" if is_open else None

    def goes_on(self, done: Position) -> GoesOn | None:
        if not (lost := losses(self.state, done)):
            return None
        nexts = next_offsets(done)
        names = (
            OffsetRange(self.origin.topic, p, nexts.get(p, 0), loss.goes_on_at).name
            for loss in lost
            for p in [loss.partition]
        )
        what = told(self.origin, lost)
        return GoesOn(what, count_of(lost), tuple(sorted(names)), self.state.id)

    def reader(self, batch: Batch) -> ReadPart:
        from include.landing.kafka_rows import outcomes_of_range  # which reads by this module

        return partial(outcomes_of_range, self.source, batch)

    def passed_over(self, batch: Batch) -> list[Finding]:
        return []


def _pieces(whole: OffsetRange) -> Iterator[OffsetRange]:
    if whole.first == whole.until:
        yield whole
    for first in range(whole.first, whole.until, MESSAGES_A_RANGE):
        yield whole._replace(first=first, until=min(first + MESSAGES_A_RANGE, whole.until))
