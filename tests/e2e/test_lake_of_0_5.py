"""A lake of release 0.5 goes on under this one: five streams, a savepoint, late rows that nobody recomputed.

tests/e2e/lake_of_0_5/make.py has made it, by 0.5's own code.
"""

import re
import shutil
import tarfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from include.care.check_checkpoint import check_checkpoint
from include.checkpoint.batches import last_batch
from include.coverage.table_coverage import table_coverage
from include.fold.ddl import KEYS
from include.fold.instants import micros_of
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.plans.plan_recompute import plan_recompute, settled_until
from include.plans.reseed_options import ReseedOptions
from include.plans.stream_identity import stream_identity
from include.registry import all_sources, all_streams, stream_named
from include.sample.sample_data import Options, generate
from include.stream_definition import load_definition
from spark_jobs.engines.checkpointed_states import find_unreadable, read_states, read_waiting
from spark_jobs.engines.live_of_0_5 import KEYS as OLD_KEYS
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.engines.state_fingerprint import fingerprint_state
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.landed_sql import oracle_rows, table_rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.xdist_group("lake of 0.5"),
    pytest.mark.turn(1),
]

ARCHIVE = Path(__file__).parent / "lake_of_0_5" / "lake.tar.xz"
STREAMS = all_streams()
# The landings of 0.5 were of the hours 0 to 3, 3 to 6, and 5 to 8: of its last hour one is late.
START = datetime(2026, 3, 1, tzinfo=UTC)
LATE_FROM, LATE_UNTIL = START + timedelta(hours=5), START + timedelta(hours=6)
# What this release lands comes after an hour of silence, which ends sessions.
NEXT, END = START + timedelta(hours=9), START + timedelta(hours=12)


@pytest.fixture(scope="module")
def old_lake(tmp_path_factory) -> Lake:
    """The lake as 0.5 left it."""
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    lake = Lake(str(folder / "lake"))
    for log in ("ingest/*/sources/0/[!.]*", "*/*/state/0/_metadata/v2/[!.]*"):
        for file in Path(lake.root, "checkpoints").glob(log):
            move_paths(file, lake)
    return lake


def move_paths(file: Path, lake: Lake) -> None:
    """Spark keeps whole paths, of landed files and of a state's schema: they lie elsewhere now."""
    Path(file.parent, f".{file.name}.crc").unlink(missing_ok=True)
    root = re.compile(r"file:[^\"]*/lake/(?=landing/|checkpoints/)")
    file.write_text(root.sub(f"file://{lake.root}/", file.read_text()))


@pytest.fixture(scope="module")
def gone_on(spark, old_lake, tmp_path_factory) -> Lake:
    """The same after a landing, and a run of each stream under this release."""
    staging = Lake(str(tmp_path_factory.mktemp("staging")))
    sample = Options(start=NEXT, seed=4, keys=3, events=600, span_hours=3, late_share=0)
    for source in all_sources():
        generate(staging, source, sample)
        for file in Path(staging.landing(source.name)).iterdir():
            file.rename(Path(old_lake.landing(source.name), f"d-{file.name}"))
        ingest(old_lake, source, interval_end=END)
    begin_a_batch(old_lake, "user_counts")
    for stream in STREAMS:
        drain(SparkEngine(spark), old_lake, stream)
    return old_lake


def begin_a_batch(lake: Lake, stream: str) -> None:
    """As far as 0.5 would have written of the operator: no further."""
    metadata = Path(lake.checkpoint(stream, 1), "state", "0", "_metadata", "v2")
    newest = max(int(file.name) for file in metadata.iterdir() if file.name.isdigit())
    committed = Path(lake.checkpoint(stream, 1), "commits").iterdir()
    begun = 1 + max(int(file.name) for file in committed if file.name.isdigit())
    shutil.copy(metadata / str(newest), metadata / str(begun))


def test_the_lake_is_one_that_0_5_has_left(old_lake):
    assert not old_lake.is_delta_table(old_lake.ops("coverage"))
    late = read_ops(old_lake, "findings", {"finding": "late_rows"})
    assert set(late["subject"].to_pylist()) == {stream.name for stream in STREAMS}
    assert read_ops(old_lake, "savepoints", {"stream": "user_counts"}).num_rows


def test_its_states_are_read_as_0_5_stored_them(spark, old_lake):
    assert counts_in_state(spark, old_lake) == table_rows(old_lake, "user_counts")
    checkpoint = old_lake.checkpoint("user_counts", 1)
    fold = load_definition(stream_named("user_counts")).fold
    run = last_batch(old_lake, "user_counts", 1)
    waiting = read_waiting(spark, checkpoint).groupBy().sum("waiting").collect()[0][0]
    assert waiting == run["rows_pending"] > 0
    assert fingerprint_state(spark, checkpoint, fold).pending.rows == waiting
    assert find_unreadable(spark, checkpoint, fold) is None


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_it_goes_on_and_says_that_its_rows_are_late_and_nothing_is_recorded(gone_on, stream):
    found = {finding.finding: finding for finding in check_checkpoint(gone_on, stream).findings}
    assert not {name for name, each in found.items() if each.severity == "error"}
    assert "code_changed" not in found
    assert settled_until(gone_on, stream.name) > END - timedelta(minutes=30)
    reasons = {span.reason for span in table_coverage(gone_on, stream).coverage.wrong}
    assert reasons <= {"not recorded", "late rows"}


def test_a_savepoint_of_0_5_is_clean(gone_on):
    stream = stream_named("user_counts")
    plan = plan_recompute(gone_on, stream, stream_identity(gone_on, stream), LATE_FROM, LATE_UNTIL)
    assert plan.base.savepoint is not None
    assert plan.base.until_us <= micros_of(START + timedelta(hours=3))


def test_a_backfill_takes_the_late_rows_of_its_hour_in(spark, gone_on):
    stream = stream_named("device_signals")
    recompute(SparkEngine(spark), gone_on, stream, LATE_FROM, LATE_UNTIL)
    expected = oracle_rows(gone_on, stream, micros_of(settled_until(gone_on, stream.name)))
    assert of_late_hour(table_rows(gone_on, stream.name)) == of_late_hour(expected) != {}


def of_late_hour(rows: Counter[Any]) -> dict[Any, int]:
    within = range(micros_of(LATE_FROM), micros_of(LATE_UNTIL))
    return {row: count for row, count in rows.items() if row[-1] in within}


def test_what_batches_have_touched_is_stored_anew_and_the_rest_is_read_as_it_was(spark, gone_on):
    checkpoint = gone_on.checkpoint("user_counts", 1)
    anew, as_it_was = (stored_buckets(spark, checkpoint, name) for name in (KEYS, OLD_KEYS))
    assert anew
    assert not anew & as_it_was
    assert counts_in_state(spark, gone_on) == table_rows(gone_on, "user_counts")


def counts_in_state(spark, lake: Lake) -> Counter[Any]:
    fold = load_definition(stream_named("user_counts")).fold
    states = read_states(spark, lake.checkpoint("user_counts", 1), fold).collect()
    return Counter((row.key, row.state.total_count, row.changed_at_us) for row in states)


def stored_buckets(spark, checkpoint: str, variable: str) -> set[int]:
    reader = spark.read.format("statestore").option("stateVarName", variable)
    return {row.bucket for row in reader.load(checkpoint).select("key.bucket").collect()}


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_a_reseed_takes_the_late_rows_in_and_the_table_equals_sql(spark, gone_on, stream):
    reseed(SparkEngine(spark), gone_on, stream, ReseedOptions())
    assert table_coverage(gone_on, stream).coverage.wrong == ()
    until_us = micros_of(settled_until(gone_on, stream.name))
    expected = oracle_rows(gone_on, stream, until_us)
    assert expected.total() > 0
    assert table_rows(gone_on, stream.name) == expected
