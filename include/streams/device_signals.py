"""The count of signals that each device has sent: one row for every signal, with the count so far."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import flat_map_groups_with_state
from include.fold.group_state import GroupState
from include.settings import Stream


class Signal(NamedTuple):
    device_id: int
    event_time_us: int
    value: int


class Counted(NamedTuple):
    signals: int


class EventsCounted(NamedTuple):
    device_id: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which a record has no use for


def count_values_per_device(
    device_id: int, signals: Iterator[Signal], state: GroupState[Counted]
) -> Iterator[EventsCounted]:
    """The device's count after these signals."""
    counted = state.get.signals if state.exists else 0
    counted += sum(1 for _ in signals)
    state.update(Counted(counted))
    yield EventsCounted(device_id, counted)


FOLD = flat_map_groups_with_state(
    count_values_per_device,
    key="device_id",
    event=Signal,
    state=Counted,
    output=EventsCounted,
    output_mode="append",
)
STREAM = Stream(
    source="signals",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    fold=FOLD,
    comments={
        "device_id": "The device that sent the signal",
        "count": "Signals of the device so far, this one included",
    },
)
