"""What a live run refuses or fails at, and that nothing is lost by it."""

import sys
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException

from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.stream.record import commit_alone, recorded
from include.streams import device_signals, user_counts
from include.streams.device_signals import Signal
from spark_jobs.engines.packing import Bounds
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit, stamp
from tests.engines.live_lakes import (
    COUNTED,
    COUNTS,
    MINUTE_US,
    SIGNALS,
    START_US,
    table_rows,
)
from tests.refused import refused

pytestmark = pytest.mark.spark


# Workers cannot import tests, so what they need of this one travels with the query.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_rows_that_do_not_add_up_fail_the_run_with_a_finding(spark, counted_lake):
    lake = counted_lake
    record = recorded(read_generations(lake, COUNTS.name))
    totals = record.totals | {"total_folded": record.totals["total_folded"] + 1}
    commit_alone(lake, replace(record, totals=totals))
    append_commit(lake, COUNTS.source, user_counts.FOLD, COUNTED[1])
    with refused("rows_do_not_add_up", subject=COUNTS.name):
        drain(SparkEngine(spark), lake, COUNTS)
    found = read_ops(lake, "findings").to_pylist()
    assert [row["finding"] for row in found if row["severity"] == "error"] == ["rows_do_not_add_up"]


@pytest.mark.e2e
def test_a_cut_commit_fails_loudly_and_writes_nothing(spark, lake):
    early, late = Signal(1, START_US, 0), Signal(1, START_US + 60 * MINUTE_US, 0)
    (stamped,) = stamp([[late, early]])
    append_commit(lake, SIGNALS.source, device_signals.FOLD, stamped[:1])
    drain(SparkEngine(spark), lake, SIGNALS)
    append_commit(lake, SIGNALS.source, device_signals.FOLD, stamped[1:])
    with pytest.raises(StreamingQueryException):
        drain(SparkEngine(spark), lake, SIGNALS)
    assert table_rows(lake, SIGNALS, device_signals.FOLD) == Counter()
    outcomes = Counter(run["outcome"] for run in read_ops(lake, "runs").to_pylist())
    assert outcomes == {"succeeded": 1, "failed": 1}


def test_an_event_field_that_bronze_does_not_have_is_refused_before_anything_runs(spark, lake):
    append_commit(lake, "signals", device_signals.FOLD, stamp([[Signal(1, START_US, 0)]])[0])
    engine, bounds = SparkEngine(spark), Bounds(START_US)
    with refused("wrong_definition", subject="user_id"):
        engine.events(lake, "signals", user_counts.FOLD, bounds)
    write_deltalake(lake.bronze("others"), pa.table({"device_id": ["a"]}))
    with refused("wrong_definition", subject="device_id"):
        engine.events(lake, "others", device_signals.FOLD, bounds)
