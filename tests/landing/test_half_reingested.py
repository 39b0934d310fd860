"""A re-ingestion that died between bronze and quarantine, and what must not change before its repeat."""

import gzip
import json
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from include.erase.erase_plan import plan_erasure
from include.erase.erased_key import erased_key
from include.lake.paths import Lake, LakeError
from include.landing.ingest import ingest
from include.settings import Field
from spark_jobs import reingest_quarantine
from spark_jobs.reingest_quarantine import reingest
from tests.deaths import KilledError, die
from tests.ingested import SIGNALS, bronze_of
from tests.landed_files import START, Landing, signal
from tests.landing.test_reingest_quarantine import now, open_rows, versions
from tests.refused import refused

DEVICE, VALUE = SIGNALS.fields
SOURCE = replace(SIGNALS, fields=(DEVICE, replace(VALUE, required=False)))
MENDED = [signal(1), signal(2)]


def corrected(value: int | None, extra: int) -> str:
    """What is given for the one row that was refused."""
    return json.dumps(json.loads(signal(3, value=value)) | {"extra": extra})


@pytest.fixture
def refused_id(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Of that row, which bronze has, and a mended file, whose rows it has: quarantine knows of neither."""
    landed.add("a#0.jsonl", [signal(7)])
    landed.add("a.jsonl.gz", b"no gzip")
    landed.add("b.jsonl", ["["])
    ingest(lake, SOURCE)
    (row,) = (row for at, row in open_rows(lake).items() if at[0] == "b.jsonl")
    land(landed, MENDED)
    with monkeypatch.context() as patch:
        patch.setattr(reingest_quarantine, "resolve", die)
        with pytest.raises(KilledError):
            reingest(spark, lake, SOURCE, {row.quarantine_id: corrected(None, 1)}, now())
    return str(row.quarantine_id)


def land(landed: Landing, lines: list[str]) -> None:
    landed.add("a.jsonl.gz", gzip.compress("\n".join(lines).encode()))


@pytest.mark.spark
def test_what_it_has_taken_must_not_change(
    spark: SparkSession, lake: Lake, landed: Landing, refused_id: str
):
    before, same = versions(lake), corrected(None, 1)
    for lines, given in [
        ([signal(0), *MENDED], same),
        (MENDED[:1], same),
        (["{", MENDED[1]], same),
        (MENDED, corrected(4, 1)),
        (MENDED, corrected(None, 2)),
        (MENDED, None),
    ]:
        land(landed, lines)
        corrections = {refused_id: given} if given else {}
        with refused("rows_do_not_add_up", subject="signals"):
            reingest(spark, lake, SOURCE, corrections, now())
    assert versions(lake) == before
    land(landed, [*MENDED, signal(5)])
    reingest(spark, lake, SOURCE, {refused_id: same}, now())
    seconds = sorted((r["event_time"] - START).total_seconds() for r in bronze_of(lake))
    assert seconds == [1, 2, 3, 5, 7]
    assert not open_rows(lake)


@pytest.mark.spark
def test_an_erasure_waits_for_it(spark: SparkSession, lake: Lake, refused_id: str):
    """It deletes the mended file as a whole, with refused rows of others that are nowhere else."""
    key = erased_key("signals", "device_id=1")
    with pytest.raises(LakeError):
        plan_erasure(lake, key)
    reingest(spark, lake, SOURCE, {refused_id: corrected(None, 1)}, now())
    assert plan_erasure(lake, key).found.rows == 4


@pytest.mark.spark
def test_a_field_that_is_called_rescued_is_no_change(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    """It is one of a source that rescues nothing."""
    field = Field(name="rescued", type="string", comment="Of its own")
    source = replace(SOURCE, fields=(*SOURCE.fields, field), rescue=False)
    landed.add("a.jsonl", ["["])
    ingest(lake, source)
    ((_, row),) = open_rows(lake).items()
    correction = json.dumps(json.loads(signal(1)) | {"rescued": "a value"})
    with monkeypatch.context() as patch:
        patch.setattr(reingest_quarantine, "resolve", die)
        with pytest.raises(KilledError):
            reingest(spark, lake, source, {row.quarantine_id: correction}, now())
    reingest(spark, lake, source, {row.quarantine_id: correction}, now())
    assert [found["rescued"] for found in bronze_of(lake)] == ["a value"]
    assert not open_rows(lake)
