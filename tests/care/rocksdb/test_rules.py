"""The rules: when each asks for a change, and how far it goes."""

from dataclasses import replace

import pytest

from include.care.rocksdb.profiles import Profile, complete_settings
from include.care.rocksdb.rules import Situation, propose
from include.registry import stream_named
from include.settings import GIB, MIB
from tests.care.rocksdb.made_batches import batches

STREAM = stream_named("user_counts")
NONE_REFUSED: frozenset[tuple[str, bool]] = frozenset()
REWRITES = {"bytes_rewritten": 20 * MIB, "bytes_written": 4 * MIB}
CALM = {"bytes_rewritten": 0, "bytes_written": 4 * MIB}
HUGE = {"rss_bytes": 6 * GIB, "store_memory": 1 * GIB}


def situation(
    figures: dict[str, float],
    held: frozenset[str] = frozenset(),
    ceiling: int = 2_048,
    **tuned: str,
) -> Situation:
    settings = {**complete_settings(tuned, STREAM, 64 * GIB), **tuned}
    known = {"rss_bytes": 1 * GIB, "store_memory": 50 * MIB, "logs_replayed": 8.0} | figures
    return Situation(
        profile=Profile(number=1, settings=settings, held=held, verdict="default", reason=""),
        batches=[replace(b, figures={**b.figures, **known}) for b in batches([0] * 5)],
        memory_ceiling_mb=ceiling,
        rss_limit_bytes=4 * GIB,
    )


def change(now: Situation, refused=NONE_REFUSED) -> tuple[str, str] | None:
    proposal = propose(now, refused)
    return None if proposal is None else (proposal.setting, proposal.value)


def test_nothing_is_asked_for_when_batches_rewrite_nothing():
    assert change(situation(CALM)) is None


@pytest.mark.parametrize(
    ("rewritten", "written", "asked"),
    [
        (1 * MIB, 4 * MIB, True),
        (1 * MIB - 1, 4 * MIB, False),  # too few bytes
        (1 * MIB, 4 * MIB + 4, False),  # too small a part
        (100 * MIB, 0, True),
    ],
)
def test_rewriting_counts_from_a_mebibyte_and_a_quarter_on(rewritten, written, asked):
    now = situation({"bytes_rewritten": rewritten, "bytes_written": written})
    assert (change(now) is not None) is asked


def test_the_part_for_writes_comes_first_as_it_costs_nothing():
    assert change(situation(REWRITES)) == ("writeBufferCacheRatio", "0.8")
    assert change(situation(REWRITES, writeBufferCacheRatio="0.8")) == ("maxMemoryUsageMB", "1024")


def test_the_part_for_writes_leaves_room_for_the_other_ratio():
    now = situation(REWRITES, highPriorityPoolRatio="0.3")
    assert change(now) == ("writeBufferCacheRatio", "0.6")
    tight = situation(REWRITES, highPriorityPoolRatio="0.4", writeBufferCacheRatio="0.5")
    assert change(tight) == ("maxMemoryUsageMB", "1024")


def test_memory_goes_no_further_than_machine_and_limit_allow():
    full = {"writeBufferCacheRatio": "0.8"}
    assert change(situation(REWRITES, ceiling=700, **full)) == ("maxMemoryUsageMB", "700")
    # Less than twice as much could not be told from noise.
    assert change(situation(REWRITES, ceiling=511, **full)) is None
    near = REWRITES | {"rss_bytes": 4 * GIB - 300 * MIB}
    assert change(situation(near, **full)) == ("maxMemoryUsageMB", "556")
    assert change(situation(REWRITES | {"rss_bytes": 4 * GIB}, **full)) is None


def test_a_process_above_its_limit_gets_less_memory_before_anything_else():
    now = situation(REWRITES | HUGE, maxMemoryUsageMB="2048")
    assert change(now) == ("maxMemoryUsageMB", "512")
    assert change(replace(now, rss_limit_bytes=6 * GIB)) == ("writeBufferCacheRatio", "0.8")
    assert change(replace(now, rss_limit_bytes=None)) == ("writeBufferCacheRatio", "0.8")


def test_less_memory_stops_at_the_floor():
    assert change(situation(CALM | HUGE, maxMemoryUsageMB="128")) == ("maxMemoryUsageMB", "64")
    assert change(situation(CALM | HUGE, maxMemoryUsageMB="64")) is None


def test_the_state_stores_are_not_blamed_for_a_large_process():
    small = CALM | {"rss_bytes": 6 * GIB, "store_memory": 100 * MIB}
    assert change(situation(small, maxMemoryUsageMB="256")) is None
    # Nor lowered to a limit that they would not reach.
    unused = CALM | {"rss_bytes": 6 * GIB, "store_memory": 700 * MIB}
    assert change(situation(unused, maxMemoryUsageMB="4096")) is None


def test_what_is_held_by_hand_is_passed_over():
    held = frozenset({"writeBufferCacheRatio"})
    assert change(situation(REWRITES, held)) == ("maxMemoryUsageMB", "1024")
    assert change(situation(REWRITES, held | {"maxMemoryUsageMB"})) is None


def test_without_bounded_memory_there_is_nothing_to_tune():
    assert change(situation(REWRITES | HUGE, boundedMemoryUsage="false")) is None


def test_what_was_refused_is_passed_over_in_its_direction_only():
    refused = frozenset({("writeBufferCacheRatio", True)})
    assert change(situation(REWRITES), refused) == ("maxMemoryUsageMB", "1024")
    assert change(situation(REWRITES), refused | {("maxMemoryUsageMB", True)}) is None
    high = situation(REWRITES | HUGE, maxMemoryUsageMB="2048")
    assert change(high, frozenset({("maxMemoryUsageMB", True)})) == ("maxMemoryUsageMB", "512")


def test_a_proposal_says_why_with_figures():
    proposal = propose(situation(REWRITES), NONE_REFUSED)
    assert "20.0 MiB" in proposal.reason
    assert "4.0 MiB" in proposal.reason
    assert proposal.evidence["bytes_rewritten"] == 20 * MIB
    assert (proposal.figure, proposal.before) == ("bytes_rewritten", "0.5")
