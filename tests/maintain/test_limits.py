"""Which figures are above their limits, and when a compaction is worth its run."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.maintain.check_checkpoint import (
    GARBAGE_FLOOR_BYTES,
    SKEW_FLOOR_BYTES,
    Recorded,
    limit_findings,
    plan_compaction,
)
from include.registry import stream_named
from include.settings import GIB, Limits
from include.stream.measure_checkpoint import CheckpointSize, PartSize, Position, StoreSize

NO_LIMITS = Limits(**dict.fromkeys(vars(Limits())))
STREAM = replace(stream_named("user_counts"), limits=NO_LIMITS)
NOW = datetime(2026, 3, 1, tzinfo=UTC)
NOTHING_RECORDED = Recorded(None, None, 0, None)


def store(partition: int, bytes: int, **figures: int) -> StoreSize:
    known = dict.fromkeys(StoreSize.__dataclass_fields__, 0)
    place = {"partition": partition, "store": "default", "bytes": bytes}
    return StoreSize(**known | place | figures)


def checkpoint(*stores: StoreSize, planned: int = 9, committed: int | None = 9) -> CheckpointSize:
    state = PartSize(
        part="state",
        bytes=sum(store.bytes for store in stores),
        files=10 * len(stores),
        orphan_files=0,
    )
    return CheckpointSize(
        stream=STREAM.name,
        generation=1,
        checkpoint="/lake/checkpoints/user_counts/1",
        measured_at=NOW,
        position=Position(planned=planned, committed=committed),
        parts=(state,),
        stores=stores,
    )


def found(size: CheckpointSize, limits: Limits, recorded: Recorded = NOTHING_RECORDED):
    stream = replace(STREAM, limits=limits)
    return {finding.finding: finding for finding in limit_findings(stream, size, recorded)}


BIG = SKEW_FLOOR_BYTES
SIZE = checkpoint(store(0, 6 * BIG, replay_versions=3), store(1, 2 * BIG), store(2, BIG))
GARBAGE = checkpoint(store(0, 4 * GARBAGE_FLOOR_BYTES, garbage_bytes=GARBAGE_FLOOR_BYTES))
HELD = [
    ("checkpoint_bytes", SIZE, 9 * BIG),
    ("checkpoint_files", SIZE, 30),
    ("replay_versions", SIZE, 3),
    ("skew", SIZE, 3.0),
    ("garbage_share", GARBAGE, 0.25),
    ("uncommitted_batches", checkpoint(planned=9, committed=7), 2),
    ("uncommitted_batches", checkpoint(planned=0, committed=None), 1),
]


@pytest.mark.parametrize(("name", "size", "figure"), HELD)
def test_a_figure_at_its_limit_is_fine_and_above_it_is_found(name, size, figure):
    assert found(size, replace(NO_LIMITS, **{name: figure})) == {}
    limit = figure * 0.99
    above = found(size, replace(NO_LIMITS, **{name: limit}))
    assert [(one.figure, one.limit) for one in above.values()] == [(figure, limit)]
    mended = name in ("replay_versions", "garbage_share")
    assert above[name].severity == ("info" if mended else "warning")


SIZES = st.builds(
    checkpoint,
    st.builds(
        store,
        st.just(0),
        st.integers(GARBAGE_FLOOR_BYTES, 10 * GIB),
        replay_versions=st.integers(0, 40),
        garbage_bytes=st.integers(0, GARBAGE_FLOOR_BYTES * 2),
    ),
)


@given(size=SIZES, replay=st.integers(0, 40), share=st.floats(0, 1))
def test_a_compaction_is_decided_exactly_when_its_finding_is_made(size, replay, share):
    limits = replace(NO_LIMITS, replay_versions=replay, garbage_share=share)
    findings = found(size, limits)
    assert plan_compaction(size, list(findings.values())).needed == bool(findings)
