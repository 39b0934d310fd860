"""A broken file of a lake: the next run is right, or ends with a line of ours that says what to do."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from include.care.why_failed import BrokenLakeError, told_why
from include.lake.errors import StatefulError
from include.lake.paths import Lake
from include.streams import user_counts
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit
from tests.engines.live_lakes import COUNTED, COUNTS, expected_rows, local_run, table_rows

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.xdist_group("loud stops")]

OURS = (BrokenLakeError, StatefulError)
WAY_OUT = re.compile(r"`\./stateful [a-z-]+")
CHECKPOINT = "checkpoints/user_counts/1"


def delete(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def flip(file: Path) -> None:
    """All of its middle half."""
    content = file.read_bytes()
    quarter = len(content) // 4
    middle = bytes(byte ^ 0xFF for byte in content[quarter:-quarter])
    file.write_bytes(content[:quarter] + middle + content[-quarter:])


ALL = (delete, empty, cut, flip)
# The newest file of each pattern, below the lake, and what is done to it.
BROKEN: dict[str, tuple[Callable[[Path], None], ...]] = {
    f"{CHECKPOINT}/metadata": ALL,
    f"{CHECKPOINT}/offsets/[0-9]*": ALL,
    f"{CHECKPOINT}/commits/[0-9]*": ALL,
    f"{CHECKPOINT}/state/0/0/**/*.changelog": ALL,
    f"{CHECKPOINT}/state/0/_metadata/**/[0-9]*": (delete, cut),
    # A whole commit that is gone is for ingestion to find: tests/landing/test_ingest_damage.py.
    "bronze/user_events/_delta_log/*.json": (cut, flip),
    "bronze/user_events/**/*.parquet": ALL,
    "tables/user_counts/_delta_log/*.json": ALL,
    "tables/user_counts/*.parquet": ALL,
    "ops/generations/_delta_log/*.json": ALL,
    "ops/generations/*.parquet": (delete, cut),
    "ops/batches/_delta_log/*.json": (empty, cut),
    "ops/batches/*.parquet": (delete, cut),
    "ops/coverage/_delta_log/*.json": (empty, cut),
    "ops/coverage/*.parquet": (delete, cut),
    "ops/tables/_delta_log/*.json": (empty, cut),
    "ops/tables/*.parquet": (delete, cut),
    "ops/runs/*.parquet": (delete, cut),
}


def newest(lake: Lake, pattern: str) -> Path:
    found = [path for path in Path(lake.root).glob(pattern) if not path.name.startswith(".")]
    return max(found, key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize(
    ("pattern", "damage"), [(pattern, how) for pattern, hows in BROKEN.items() for how in hows]
)
def test_the_next_run_is_right_or_says_what_is_broken_and_what_mends_it(
    spark, lake_counted_twice, pattern, damage
):
    lake = lake_counted_twice
    append_commit(lake, COUNTS.source, user_counts.FOLD, COUNTED[2])
    before = table_rows(lake, COUNTS, user_counts.FOLD)
    damage(file := newest(lake, pattern))
    # Checksums of Hadoop's are beside the file, and lost with it where a disk is.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    try:
        with told_why(lake, COUNTS):
            drain(SparkEngine(spark), lake, COUNTS)
    except OURS as error:
        told = str(error)
        assert WAY_OUT.search(told), told
        assert "\n" not in told
        part = "/".join(pattern.split("/")[:2])
        assert part in told or "user_counts" in told, told
        if "tables/" not in pattern:
            assert table_rows(lake, COUNTS, user_counts.FOLD) == before
    else:
        engine = local_run(user_counts.FOLD, COUNTED)
        assert table_rows(lake, COUNTS, user_counts.FOLD) == expected_rows(engine, user_counts.FOLD)
