"""The figures of `./stateful inspect`, of checkpoints of Spark's, held against the local engine."""

import json
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pyspark.sql import SparkSession

from include.fold.admission import micros_of
from include.fold.definition import KeyedFold
from include.fold.keys import bucket_ids
from include.lake.errors import LakeError
from include.observe.state_report import (
    SPREAD,
    SUMMED,
    Row,
    StateReport,
    format_report,
    report_json,
)
from include.settings import Stream
from include.streams import user_counts
from spark_jobs.inspect_state import inspect_state
from tests.engines.lake_runs import drained
from tests.engines.test_folds_live import MACHINE, SESSIONS, UPDATING, Arrived, Case, arrived, entry
from tests.fold import oracle
from tests.fold.oracle import Result
from tests.refused import refused


def counted_event(rng: random.Random, time_us: int) -> user_counts.UserEvent:
    return user_counts.UserEvent(rng.choice("aaabbcdefg"), time_us)


CASES = {
    "sessions": SESSIONS,
    "no timeouts": Case(entry("user_counts", "user_events", (3, 2)), counted_event),
    "keys with a timeout only": MACHINE,
    "by ingestion": UPDATING,
}


def buckets_of(spark: SparkSession, keys: Iterable[str], ids: Sequence[int]) -> list[int]:
    """The buckets of keys, in their order."""
    keys = list(keys)
    frame = spark.createDataFrame([(key,) for key in keys], "key string")
    rows = frame.selectExpr("key", f"pmod(xxhash64(key), {len(ids)}) AS position").collect()
    positions = {row["key"]: row["position"] for row in rows}
    return [ids[positions[key]] for key in keys]


def partitions_of(spark: SparkSession, ids: Sequence[int], partitions: int) -> dict[int, int]:
    """Return the partitions that Spark puts groups of these numbers into."""
    frame = spark.createDataFrame([(number,) for number in ids], "bucket int")
    rows = frame.selectExpr("bucket", f"pmod(hash(bucket), {partitions}) AS partition").collect()
    return {row["bucket"]: row["partition"] for row in rows}


def ids_of(stream: Stream) -> tuple[int, ...]:
    return bucket_ids(stream.buckets, stream.state_partitions)


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_the_figures_are_those_of_the_local_engine(spark, lake, case):
    came = arrived(CASES[case], seed=1)
    stream, known = came.stream, came.local.states
    drained(spark, lake, stream, came.fold, came.stamped, runs=1)
    inspect = partial(inspect_state, spark, lake, stream)

    report = inspect()

    places = buckets_of(spark, known, ids_of(came.stream))
    check_report(report, came, dict(zip(known, places, strict=True)))
    partitions = partitions_of(spark, ids_of(came.stream), stream.state_partitions)
    assert {row["bucket"]: row["partition"] for row in report.buckets} == partitions
    check_losses_are_said(Path(lake.checkpoint(stream.name, 1), "state", "0"), inspect)


def check_losses_are_said(state: Path, inspect: Callable[[], object]) -> None:
    """Deleted, as a compaction does meanwhile; and without a store, which Spark's reader skips."""
    for file in [*state.glob("*/*.changelog"), *state.glob("*/*.zip")]:
        file.unlink()
    with pytest.raises(LakeError):
        inspect()
    shutil.rmtree(state / "1")
    with refused("unreadable_checkpoint"):
        inspect()


def check_report(report: StateReport, came: Arrived, homes: Mapping[Any, int]) -> None:
    assert micros_of(report.until) == came.until_us
    check_keys(report, came.fold, came.local, came.until_us)
    check_timeouts(report.timeouts, came.fold, came.local)
    check_buckets(report, came, homes)
    check_json_and_tables(report)


def check_keys(report: StateReport, fold: KeyedFold, local: Result, until_us: int) -> None:
    known = local.states
    changed_us = [each.changed_at_us for each in known.values() if each.state is not None]
    assert report.keys == len(known) > 0
    assert report.keys_without_state == len(known) - len(changed_us)
    assert report.pending_events == local.pending
    # The watermark itself is the last instant before `until`.
    assert report.age_us == spread_of([until_us - 1 - each for each in changed_us])
    # A letter and where it ends; eight for each number of the state, and for the two times.
    size = 1 + 4 + 8 * (len(fold.state_columns) + 2)
    assert report.bytes_per_key == spread_of([size] * len(known))
    assert report.bytes == size * len(known)
    assert [row["key"] for row in report.biggest_keys] == sorted(known)[:10]
    for row in report.biggest_keys:
        check_key(row, known[row["key"]])


def check_key(shown: Row, known: oracle.Known) -> None:
    instants = (known.changed_at_us, known.timeout_at_us)
    assert tuple(maybe(micros_of, shown[name]) for name in ("changed_at", "timeout_at")) == instants
    state = maybe(json.loads, shown["state"])
    assert state == maybe(lambda state: state._asdict(), known.state)


def maybe(function: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else function(value)


def spread_of(figures: Sequence[int]) -> Row:
    """Each middle one: the least figure that so many of all are not above."""
    ordered = sorted(figures)
    ranks = [max(math.ceil(share * len(ordered)) - 1, 0) for share in SPREAD.values()]
    return {name: ordered[rank] for name, rank in zip(SPREAD, ranks, strict=True)}


def check_timeouts(shown: Row, fold: KeyedFold, local: Result) -> None:
    timeouts = [each.timeout_at_us for each in local.states.values() if each.timeout_at_us]
    assert shown["kind"] == fold.timeout
    assert shown["keys_with"] == len(timeouts)
    assert shown["keys_without"] == len(local.states) - len(timeouts)
    assert shown["due"] == 0  # a run that came to its end has fired them
    assert maybe(micros_of, shown["next_at"]) == min(timeouts, default=None)
    assert maybe(micros_of, shown["last_at"]) == max(timeouts, default=None)


def check_buckets(report: StateReport, came: Arrived, homes: Mapping[Any, int]) -> None:
    counts = Counter(homes.values())
    assert {row["bucket"]: row["keys"] for row in report.buckets} == {
        number: counts[number] for number in ids_of(came.stream)
    }
    for partition in report.partitions:
        own = [row for row in report.buckets if row["partition"] == partition["partition"]]
        assert partition["buckets"] == len(own)
        for figure in SUMMED:
            assert partition[figure] == sum(row[figure] for row in own)
    for figure in SUMMED:
        assert getattr(report, figure) == sum(part[figure] for part in report.partitions)
    keys = [row["keys"] for row in report.buckets]
    assert report.bucket_skew["keys"] == (max(keys) / median(keys) if median(keys) else None)
    for key in report.biggest_keys:
        assert key["bucket"] == homes[key["key"]]


def check_json_and_tables(report: StateReport) -> None:
    parsed = json.loads(report_json(report))
    text = format_report(report)
    assert set(parsed) == set(vars(report))
    assert parsed["until"] == maybe(datetime.isoformat, report.until)
    assert text.startswith(f"{report.stream}: state after batch {report.batch_id},")
    rows = [line.split() for line in text.splitlines()]
    assert ["keys", f"{report.keys:,}"] in rows
    assert ["pending_events", f"{report.pending_events:,}"] in rows
    for name, figure in parsed["bytes_per_key"].items():
        assert [f"bytes_per_key.{name}", f"{figure:,}"] in rows
