"""A stream whose file is written anew in the middle of its life, with another state."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from include.fold.definition import KeyedFold
from include.registry import stream_named
from include.settings import Stream
from tests.declared import NOT_WRITTEN, look_in, put_file

NAME = "tried_totals"
MODULE = f"include.streams.{NAME}"
STREAM: Stream = replace(
    stream_named("device_signals"),
    name=NAME,
    buckets=5,
    state_partitions=2,
    watermark_delay=timedelta(milliseconds=5),
    fold=NOT_WRITTEN,
)
RECORDS = '''
"""Signals of a device, and when it fell silent."""
from typing import Any, NamedTuple
from include.fold.definition import flat_map_groups_with_state

SILENCE_US = 40 * 3_600_000_000

class Signal(NamedTuple):
    device_id: int
    event_time_us: int
    value: int

class Row(NamedTuple):
    device_id: int
    what: str
    amount: int

COMMENTS = {"device_id": "The device", "what": "signal or silent", "amount": "A total"}
'''
FOLD = """
FOLD = flat_map_groups_with_state(
    fold, key="device_id", event=Signal, state=Total, output=Row, output_mode="append",
    timeout="EventTimeTimeout")
"""
OLD = f"""{RECORDS}
class Total(NamedTuple):
    signals: int

def fold(key, events, state):
    if state.hasTimedOut:
        yield Row(key, "silent", state.get.signals)
        state.remove()
        return
    total = Total((state.get.signals if state.exists else 0) + sum(1 for _ in events))
    state.update(total)
    state.setTimeoutTimestamp(timestampUs=state.clock_us + SILENCE_US)
    yield Row(key, "signal", total.signals)
{FOLD}"""
# What the old state cannot know: the largest value so far, and the values since.
NEW_STATE = f"""{RECORDS}
class Total(NamedTuple):
    signals: int
    largest: int | None
    recent: tuple[int, ...]

def fold(key, events, state):
    old = state.get if state.exists else Total(0, None, ())
    if state.hasTimedOut:
        yield Row(key, "silent", old.signals * 1000 + sum(old.recent))
        state.remove()
        return
    for event in events:
        largest = event.value if old.largest is None else max(old.largest, event.value)
        old = Total(old.signals + 1, largest, (*old.recent, event.value)[-3:])
    state.update(old)
    state.setTimeoutTimestamp(timestampUs=state.clock_us + SILENCE_US)
    yield Row(key, "signal", old.signals * 1000 + old.largest + sum(old.recent))
{FOLD}"""
NEW = f"""{NEW_STATE}
def migrate_state(old: dict[str, Any]) -> Total:
    return Total(old["signals"], None, (7,))
"""


class Deployed:
    """The stream's file, as it is at the moment."""

    def __init__(self, folder: Path, stream: Stream) -> None:
        self._file = folder / f"{NAME}.py"
        self._stream = stream

    def deploy(self, source: str) -> Any:
        """Put `source` in its place; the module, as a new process would load it."""
        module = put_file(self._file, source, self._stream)
        cloudpickle.register_pickle_by_value(module)  # Spark's workers do not find the file
        return module


def deployed_in(folder: Path, monkeypatch: pytest.MonkeyPatch, stream: Stream = STREAM) -> Deployed:
    """Where the stream's file is looked for, beside the shipped ones; `stream` is its entry."""
    look_in(monkeypatch, folder)
    return Deployed(folder, stream)


def fold_of(module: Any) -> KeyedFold:
    """The fold of a deployed file, named as the jobs name it."""
    fold: KeyedFold = replace(module.FOLD, stream=NAME)
    return fold
