"""Which figures are above their limits, and when a compaction is worth its run."""

from dataclasses import replace

import pytest

from include.lake.paths import Lake
from include.maintain import check_checkpoint as module
from include.maintain.check_checkpoint import CheckResult, check_checkpoint
from include.settings import Limits
from tests.maintain.checked import STREAM
from tests.stream.spark_checkpoint import SparkCheckpoint, write

NO_LIMITS = Limits(**dict.fromkeys(vars(Limits())))


def checked(lake: Lake, **limits: float) -> CheckResult:
    return check_checkpoint(lake, replace(STREAM, limits=replace(NO_LIMITS, **limits)))


@pytest.mark.parametrize(
    "name",
    ["checkpoint_bytes", "checkpoint_files", "replay_versions", "skew", "uncommitted_batches"],
)
def test_a_figure_at_its_limit_is_fine_and_above_it_is_found(
    lake, made: SparkCheckpoint, name, monkeypatch
):
    monkeypatch.setattr(module, "SKEW_FLOOR_BYTES", 1)
    write(made.stores[0].folder / "SSTs" / "1-a.sst", bytes(100_000))
    made.plan()
    (above,) = checked(lake, **{name: 0}).findings
    assert above.figure
    assert checked(lake, **{name: above.figure}).findings == ()
    result = checked(lake, **{name: above.figure * 0.99})
    assert [found.finding for found in result.findings] == [name]
    is_compacted = name == "replay_versions"
    assert above.severity == ("info" if is_compacted else "warning")
    assert (result.why_not_compact is None) == is_compacted
    if name == "skew":
        monkeypatch.setattr(module, "SKEW_FLOOR_BYTES", 1_000_000)
        assert checked(lake, skew=0).findings == ()
