"""A stream whose Event record changes while events wait: refused in a sentence, or gone on with."""

import sys
from collections import Counter
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from include.fold.ddl import event_ddl
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.streams import device_signals
from include.streams.device_signals import Signal
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from spark_jobs.tables.product import Product
from tests.bronze import append_commit, stamp
from tests.changed_stream import MODULE, NAME, STREAM, deployed_in, fold_of
from tests.deaths import KilledError
from tests.engines.lake_runs import with_conf
from tests.engines.live_lakes import table_rows
from tests.refused import refused

SECOND_US, START_US = 1_000_000, 1_750_032_000_000_000
FILE = '''
"""Signals of a device, added up."""
from typing import NamedTuple
from include.fold.definition import flat_map_groups_with_state

class Signal(NamedTuple):
    device_id: int
    event_time_us: int
{fields}

class Total(NamedTuple):
    total: int

class Row(NamedTuple):
    device_id: int
    amount: int

COMMENTS = {{"device_id": "The device", "amount": "A total"}}

def fold(key, events, state):
    total = state.get.total if state.exists else 0
    for event in events:
        total += {amount}
    state.update(Total(total))
    yield Row(key, total)

FOLD = flat_map_groups_with_state(
    fold, key="device_id", event=Signal, state=Total, output=Row, output_mode="append")
'''
FIRST = FILE.format(fields="", amount="1000")
DEMANDING = FILE.format(fields="    value: int", amount="event.value")
BROKEN = FILE.format(fields="    value: int | None", amount="event.value // 0")
OPTIONAL = FILE.format(
    fields="    value: int | None", amount="1000 if event.value is None else event.value"
)


@pytest.fixture
def files(tmp_path, monkeypatch):
    yield deployed_in(tmp_path, monkeypatch)
    sys.modules.pop(MODULE, None)


def arrive(lake, rows) -> None:
    append_commit(lake, STREAM.source, device_signals.FOLD, rows)


def run(spark, lake) -> None:
    with with_conf(spark, "spark.sql.shuffle.partitions", str(STREAM.state_partitions)):
        drain(SparkEngine(spark), lake, STREAM)


def marked(lake) -> Any:
    return read_generations(lake, NAME).pinned()["code_changed_at"]


def code_changes(lake) -> int:
    return int(read_ops(lake, "findings", {"finding": "code_changed"}).num_rows)


def written_then_killed(self, *args) -> None:
    WRITE_ONCE(self, *args)
    raise KilledError


WRITE_ONCE = Product.write_once


@pytest.mark.spark
@pytest.mark.full
def test_the_code_is_marked_as_changed_when_it_writes_and_not_when_it_fails(
    spark, lake, files, monkeypatch
):
    times = [START_US + second * SECOND_US for second in range(4)]
    first, second = stamp(
        [[Signal(key, us, 7) for us in some for key in range(3)] for some in (times[:2], times[2:])]
    )
    old = fold_of(files.deploy(FIRST))
    arrive(lake, first)
    run(spark, lake)
    assert read_generations(lake, NAME).pinned()["event_schema"] == event_ddl(old)
    arrive(lake, second)
    before = table_rows(lake, STREAM, old)

    files.deploy(DEMANDING)
    with refused("settings_changed", command=f"./stateful reseed {NAME} --apply"):
        run(spark, lake)
    files.deploy(BROKEN)
    with pytest.raises(StreamingQueryException):
        run(spark, lake)
    assert (marked(lake), code_changes(lake)) == (None, 0)
    assert table_rows(lake, STREAM, old) == before

    new = fold_of(files.deploy(OPTIONAL))
    with monkeypatch.context() as patched:
        patched.setattr(Product, "write_once", written_then_killed)
        with pytest.raises(StreamingQueryException):
            run(spark, lake)
    changed_at = marked(lake)
    assert changed_at is not None
    run(spark, lake)
    assert (marked(lake), code_changes(lake)) == (changed_at, 1)
    assert read_generations(lake, NAME).pinned()["event_schema"] == event_ddl(new)
    # What waited since before the change has no value, and counts as it did.
    totals = zip(times, [1000, 2000, 2007, 2014], strict=True)
    settled = [(us, total) for us, total in totals if us < times[-1]]
    expected = Counter(((key, total), us) for us, total in settled for key in range(3))
    assert table_rows(lake, STREAM, new) == expected
