"""Offsets of a topic: which were taken, which come next, which are lost, and where to go on behind these.

A partition goes on where the newest batch that has a split of it ends. So a loss is passed over by a
batch of no rows, which says where to go on (origin.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from include.ingest import kafka_rows
from include.ingest.connector import (
    Batch,
    Cut,
    Done,
    GoesOn,
    Lag,
    OriginError,
    ReadSplit,
    Split,
    lost_input,
)
from include.ingest.kafka_rows import Offsets, TopicState, outcomes_of_range
from include.origins import KafkaTopic
from include.settings import Source
from include.text_table import counted

# What is read in one piece: of a backlog, all cores and workers read some.
MESSAGES_A_RANGE = 50_000
# To tell whether a second process is worth its start.
BYTES_A_MESSAGE = 200


def next_offsets(done: Done) -> dict[int, int]:
    """Where each partition goes on of which a batch has a split."""
    ends: dict[int, tuple[int, int]] = {}
    for batch, split in done.splits:
        ends[split.partition] = max((batch, split.until), ends.get(split.partition, (0, 0)))
    return {partition: until for partition, (_, until) in ends.items()}


@dataclass(frozen=True)
class TopicConnector:
    """The connector of a topic."""

    source: Source
    origin: KafkaTopic

    @cached_property
    def state(self) -> TopicState:
        """The topic when it was first looked at."""
        return kafka_rows.open_topic(self.origin).state()

    def cut(self, done: Done) -> Cut:
        self._refuse_other_topic(done)
        if lost := self.goes_on(done):
            raise lost_input(self.source.name, lost.what)
        waiting = self._waiting(done)
        total = sum(until - first for first, until in waiting.values())
        if not total and done.splits:
            return Cut(())
        # The same part of each: a partition that is far ahead would make the rows of others late.
        ranges = (
            self._split(partition, first, first + self._share(size, total))
            for partition, (first, until) in waiting.items()
            for size in [until - first]
            # The first batch says where each partition was begun with.
            if size or not done.splits
        )
        return Cut(sorted(piece for each in ranges for piece in _pieces(each)))

    def _split(self, partition: int, first: int, until: int) -> Split:
        return Split(self.origin.topic, partition, first, until, self.state.id)

    def _refuse_other_topic(self, done: Done) -> None:
        """Not all brokers give topics ids, by which another would be told."""
        if not done.splits or done.origin_id != self.state.id:
            return
        taken = done.splits[-1][1].name
        if taken != self.origin.topic:
            raise OriginError(
                f"source {self.source.name} was taken of topic {taken}: put topic={taken!r} back, and take "
                f"{self.origin.topic} in under a source of another name",
                code="settings_changed",
                subject="topic",
            )

    def _waiting(self, done: Done) -> dict[int, tuple[int, int]]:
        nexts = next_offsets(done)
        found = {}
        for partition, offsets in self.state.partitions.items():
            first = nexts.get(partition, 0 if done.splits else offsets.earliest)
            found[partition] = (first, max(first, offsets.settled))
        return found

    def _share(self, size: int, total: int) -> int:
        most = self.origin.commit_messages
        return size if total <= most else -(-size * most // total)

    def lag(self, done: Done) -> Lag:
        """The offsets that no batch has; at least 1 where a run has something to say."""
        partitions = self.state.partitions.values()
        if not done.splits or self.goes_on(done):
            count = 1 + sum(each.settled - each.earliest for each in partitions)
        else:
            count = sum(until - first for first, until in self._waiting(done).values())
        # What a transaction holds is not seen, and may be older.
        is_open = any(each.settled < each.end for each in partitions)
        held = f"a transaction is open in {self.origin.place}" if is_open else None
        return Lag(count, count <= self.origin.spark_messages, held)

    def goes_on(self, done: Done) -> GoesOn | None:
        if not done.splits:
            return None  # whatever expired before was never ours
        nexts, splits = next_offsets(done), list[Split]()
        is_same = done.origin_id == self.state.id  # another topic's offsets say nothing of these
        for partition in sorted(nexts.keys() | self.state.partitions.keys()):
            taken = nexts.get(partition, 0)  # one that was added is taken from its beginning
            earliest, _, end = self.state.partitions.get(partition, Offsets(0, 0, 0))
            until = min(max(taken, earliest), end) if is_same else earliest
            if not is_same or until != taken:
                splits.append(self._split(partition, taken, until))
        if not splits:
            return None
        lost = sum(max(s.until - s.first, 0) for s in splits) if is_same else 0
        said = f"topic {self.origin.topic} has lost {counted(lost, 'offset')}, or was made anew"
        return GoesOn(said, lost, splits)

    def reader(self, batch: Batch) -> ReadSplit:
        return partial(outcomes_of_range, self.source, batch)


def _pieces(whole: Split) -> Iterator[Split]:
    if whole.first == whole.until:
        yield whole
    for first in range(whole.first, whole.until, MESSAGES_A_RANGE):
        until = min(first + MESSAGES_A_RANGE, whole.until)
        size = (until - first) * BYTES_A_MESSAGE
        yield whole._replace(first=first, until=until, bytes=size)
