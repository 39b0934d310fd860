"""Offsets of a topic: which were taken, which come next, which are lost, and where to go on behind these.

The position has ranges of offsets where that of landed files has their names. A partition goes on
where the newest batch that names it ends. So a loss is passed over by a batch of no rows, which
says where to go on (skip_lost.py).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import or_
from typing import NamedTuple

import pyarrow.compute as pc

from include.fold.admission import instant_of
from include.lake.delta_log import dataset_of
from include.lake.paths import Lake
from include.landing.arrivals import Cut, GoesOn, OriginError
from include.landing.batch import Batch, Position
from include.landing.ingest_position import is_batch_in
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
    return losses_behind(state, next_offsets(position), newest_id(position))


def losses_behind(state: TopicState, nexts: Mapping[int, int], origin_id: str | None) -> list[Loss]:
    """What is lost to who goes on at these offsets in the topic of that id."""
    of = _of_same_topic if origin_id == state.id else _of_another_topic
    return list(of(state, nexts))


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


class TopicArrivals(NamedTuple):
    """What a topic has."""

    origin: KafkaTopic
    state: TopicState

    def cut(self, source: Source, position: Position) -> Cut:
        self._refuse_other_topic(source, position)
        if lost := losses(self.state, position):
            raise OriginError(
                f"{told(self.origin, lost)}. Nothing is ingested. To go on behind what is lost",
                subject=source.name,
                command=f"./stateful skip-lost {source.name} --apply",
            )
        waiting = self._waiting(position)
        total = sum(until - first for first, until in waiting.values())
        if not total and position.parts:
            return Cut((), self.state.id)
        # The same part of each: a partition that is far ahead would make the rows of others late.
        ranges = (
            OffsetRange(self.origin.topic, partition, first, first + self._share(size, total))
            for partition, (first, until) in waiting.items()
            for size in [until - first]
            # The first batch says where each partition was begun with.
            if size or not position.parts
        )
        return Cut(tuple(sorted(r.name for each in ranges for r in _pieces(each))), self.state.id)

    def _refuse_other_topic(self, source: Source, position: Position) -> None:
        """Not all brokers give topics ids, by which another would be told."""
        if not position.parts or newest_id(position) != self.state.id:
            return
        taken = range_named(position.parts[-1].name).topic
        if taken != self.origin.topic:
            raise OriginError(
                f"source {source.name} was taken of topic {taken}, and its entry says "
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

    def sizes(self, files: Sequence[str]) -> Mapping[str, int]:
        ranges = map(range_named, files)
        return {r.name: (r.until - r.first) * BYTES_A_MESSAGE for r in ranges}

    def waiting(self, position: Position | None) -> int:
        """The offsets that no finished batch has; at least 1 where a run has something to say."""
        if position is None or not position.parts or losses(self.state, position):
            return 1 + sum(each.settled - each.earliest for each in self.state.partitions.values())
        ranges = self._waiting(position).values()
        return sum(until - first for first, until in ranges) + int(position.open is not None)

    def is_unsettled(self) -> bool:
        """Whether a transaction is open: what it holds is not seen, and may be older."""
        return any(each.settled < each.end for each in self.state.partitions.values())


def _pieces(whole: OffsetRange) -> Iterator[OffsetRange]:
    if whole.first == whole.until:
        yield whole
    for first in range(whole.first, whole.until, MESSAGES_A_RANGE):
        yield whole._replace(first=first, until=min(first + MESSAGES_A_RANGE, whole.until))


def is_readable(state: TopicState, batch: Batch) -> bool:
    """Whether a batch that was begun can be repeated as it was."""
    return batch.origin_id == state.id and all(
        (offsets := state.partitions.get(wanted.partition)) is not None
        and (wanted.first == wanted.until or offsets.earliest <= wanted.first)
        and wanted.until <= offsets.end
        for wanted in map(range_named, batch.files)
    )


def readable(state: TopicState, batch: Batch) -> Iterator[OffsetRange]:
    """What the topic still has of a batch that was begun."""
    for wanted in map(range_named, batch.files):
        offsets = state.partitions.get(wanted.partition)
        if offsets is None or batch.origin_id != state.id:
            continue
        first, until = max(wanted.first, offsets.earliest), min(wanted.until, offsets.end)
        if first < until:
            yield wanted._replace(first=first, until=until)


def count_gone(
    batch: Batch, left: Sequence[OffsetRange], events: Collection[tuple[int, int]]
) -> int:
    """The offsets of the batch that are not `left` in the topic, and are none of these events."""
    planned = map(range_named, batch.files)
    known = [
        place
        for place in events
        if not any(r.partition == place[0] and r.first <= place[1] < r.until for r in left)
    ]
    return _size(planned) - _size(left) - len(known)


def _size(ranges: Iterable[OffsetRange]) -> int:
    return sum(each.until - each.first for each in ranges)


def goes_on(
    origin: KafkaTopic, state: TopicState, position: Position, is_taken: bool
) -> GoesOn | None:
    """Behind all that is lost; None when nothing is.

    `is_taken`: the tables have the batch that was begun, so it goes on where that ends.
    """
    nexts, origin_id = next_offsets(position), newest_id(position)
    begun = _begun(position.open, is_taken)
    begun_of = position.open.origin_id if position.open else None
    lost = losses_behind(state, nexts | begun, begun_of or origin_id)
    if not lost and not begun:
        return None
    ends = nexts | begun | {loss.partition: loss.goes_on_at for loss in lost}
    named = begun.keys() | {loss.partition for loss in lost}
    names = (OffsetRange(origin.topic, p, (nexts | begun).get(p, 0), ends[p]).name for p in named)
    what = told(origin, lost) if lost else f"topic {origin.topic} has all that comes behind it"
    return GoesOn(what, count_of(lost), tuple(sorted(names)), state.id)


def _begun(batch: Batch | None, is_taken: bool) -> dict[int, int]:
    """Where its partitions go on: behind it, or where it begins."""
    found: dict[int, int] = {}
    for wanted in map(range_named, batch.files if batch else ()):
        if is_taken:
            found[wanted.partition] = max(wanted.until, found.get(wanted.partition, 0))
        else:
            found[wanted.partition] = min(wanted.first, found.get(wanted.partition, wanted.first))
    return found


def events_before(lake: Lake, source: Source, batch: Batch) -> frozenset[tuple[int, int]] | None:
    """By partition and offset, those that bronze has of a batch that was begun. None where that is
    not known, as no table has anything of it, and where no registry has a say."""
    origin = source.origin
    assert isinstance(origin, KafkaTopic)
    if origin.schema_registry is None:
        return None
    if is_batch_in(lake, source.name, "bronze", batch):
        return events_in_bronze(lake, source, batch)
    # Which is written behind bronze: so there was no event.
    return frozenset() if is_batch_in(lake, source.name, "quarantine", batch) else None


def events_in_bronze(lake: Lake, source: Source, batch: Batch) -> frozenset[tuple[int, int]]:
    """By partition and offset, those of the batch alone: one that was taken in again of quarantine is
    called otherwise, and of a topic that was made anew since, offsets are of older commits."""
    partition, offset, file = map(pc.field, ("kafka_partition", "kafka_offset", "source_file"))
    ranges = [
        (file == f"{part.topic}/{part.partition}")
        & (partition == part.partition)
        & (offset >= part.first)
        & (offset < part.until)
        for part in map(range_named, batch.files)
    ]
    within = reduce(or_, ranges) & (pc.field("ingested_at") >= instant_of(batch.ingested_at_us))
    bronze = dataset_of(lake.bronze(source.name))
    rows = bronze.to_table(columns=["kafka_partition", "kafka_offset"], filter=within)
    return frozenset(zip(*(column.to_pylist() for column in rows.columns), strict=True))
