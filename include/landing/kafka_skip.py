"""Where a topic that has lost offsets is gone on with, and what it still has of a batch."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from include.landing.arrivals import GoesOn
from include.landing.batch import Batch, Position
from include.landing.kafka_offsets import (
    Loss,
    OffsetRange,
    TopicState,
    losses_behind,
    newest_id,
    next_offsets,
    range_named,
    told,
)
from include.origins import KafkaTopic


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
    lost = losses_behind(state, nexts | begun, _id_of(position) or origin_id)
    if not lost and not begun:
        return None
    ends = nexts | begun | {loss.partition: loss.goes_on_at for loss in lost}
    named = begun.keys() | {loss.partition for loss in lost}
    names = (OffsetRange(origin.topic, p, (nexts | begun).get(p, 0), ends[p]).name for p in named)
    what = told(origin, lost) if lost else f"topic {origin.topic} has all that comes behind it"
    return GoesOn(what, _count(lost), tuple(sorted(names)), state.id)


def _begun(batch: Batch | None, is_taken: bool) -> dict[int, int]:
    """Where its partitions go on: behind it, or where it begins."""
    found: dict[int, int] = {}
    for wanted in map(range_named, batch.files if batch else ()):
        if is_taken:
            found[wanted.partition] = max(wanted.until, found.get(wanted.partition, 0))
        else:
            found[wanted.partition] = min(wanted.first, found.get(wanted.partition, wanted.first))
    return found


def _id_of(position: Position) -> str | None:
    return position.open.origin_id if position.open else None


def _count(lost: list[Loss]) -> int:
    return sum(loss.offsets or 0 for loss in lost)
