"""Whether a table is right, against the definition taken word by word, instant by instant."""

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.lake.paths import Lake
from include.stream import judge as judging
from include.stream.judge import LateGroup, judge
from include.stream.manifest import StreamIdentity
from tests.examples import examples
from tests.stream.ledgers import TICKS, entry, entry_at, ledgers

LAKE = Lake("/nowhere")
APPEND = StreamIdentity(
    stream="user_counts",
    source="user_events",
    output_mode="append",
    time_column="event_time",
    delay_us=1,
    code="a",
    state_schema="",
    since_us=None,
)
late_rows = st.lists(
    st.builds(
        lambda ingested, first, more: LateGroup(date(2026, 1, 1), ingested, 1, first, first + more),
        st.integers(0, 6),
        st.integers(-1, TICKS),
        st.integers(0, 2),
    ),
    max_size=4,
)


def judged(ledger, late, identity=APPEND):
    """The verdict, bronze having these late rows under each delay."""

    def groups(lake, source, delay_us, since_us, after_us):
        return [g for g in late if after_us is None or g.ingested_at_us > after_us]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(judging, "late_groups", groups)
        return judge(LAKE, ledger, identity)


def reason_at(ledger, late, tick: int) -> str | None:
    """Why the table is not right at the tick, by the definition."""
    one = entry_at(ledger, tick)
    if one is None:
        return "not recorded"
    if not set(one.codes) <= {"a"}:
        return "other code"
    pin = one.bronze_ingested_at_us
    lacks = [
        group
        for group in late
        if group.first_us <= tick and (pin is None or group.ingested_at_us > pin)
    ]
    return "late rows" if lacks else None


@examples(2_000)
@given(ledgers(), late_rows)
def test_each_instant_is_judged_as_the_definition_says(ledger, late):
    coverage = judged(ledger, late)
    newest = next((one for one in reversed(ledger) if one.kind != "recompute"), None)
    recorded = [t + 1 for t in range(TICKS) if newest and entry_at(ledger, t)]
    ends = [*recorded, *([newest.until_us] if newest and newest.until_us is not None else [])]
    assert coverage.until_us == max(ends, default=None)
    if coverage.until_us is None:
        return
    for tick in range(-3, coverage.until_us):
        (span,) = [span for span in coverage.spans if span.from_us <= tick < span.until_us]
        assert span.reason == reason_at(ledger, late, tick)
    wrong = [t for t in range(-3, coverage.until_us) if reason_at(ledger, late, t)]
    assert max(coverage.right_until_us, -3) == min(wrong, default=coverage.until_us)


def test_an_update_table_is_right_or_wrong_as_a_whole():
    identity = replace(APPEND, output_mode="update")
    ledger, late = [entry(1, "live", None, 9)], [LateGroup(date(2026, 1, 1), 3, 2, 5, 6)]
    assert [span.reason for span in judged(ledger, [], identity).spans] == [None]
    assert [span.reason for span in judged(ledger, late, identity).spans] == ["late rows"]
    after = [LateGroup(date(2026, 1, 1), 3, 2, 9, 9)]
    assert judged(ledger, after, identity).wrong == ()


def test_a_mapping_stands_for_the_code_before_it_and_that_one_for_its_own():
    ledger = [
        entry(1, "live", None, 3, codes=("old",)),
        entry(2, "reseed", 3, 6, codes=("b+1",), mapped_from="old", bronze_ingested_at_us=0),
        entry(3, "reseed", 6, 9, codes=("a+2",), mapped_from="b+1", bronze_ingested_at_us=0),
    ]
    mapped = replace(APPEND, code="a+2")
    assert judged(ledger, [], mapped).wrong == ()
    assert [span.until_us for span in judged(ledger, []).wrong] == [9]
