"""Bronze's late rows, against plain Python, however its files lie."""

import tempfile
from collections import defaultdict
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import instant_of, micros_of
from include.lake.paths import Lake
from include.registry import stream_named
from include.stream.judge import LateGroup, late_groups
from include.streams.user_counts import FOLD, UserEvent
from tests.bronze import ClockAt, append_commit, stamp
from tests.examples import examples

STREAM = stream_named("user_counts")
SOURCE = STREAM.source
DELAY_US = STREAM.watermark_delay // timedelta(microseconds=1)
START_US = micros_of(datetime(2026, 3, 1, tzinfo=UTC))
# Steps of half the delay, so that rows come just late and just not; some in one millisecond.
times_us = st.builds(
    lambda step, micros: START_US + step * DELAY_US // 2 + micros,
    st.sampled_from([0, 1, 2, 3, 4, 287, 288, 289, 290, 3 * 288]),
    st.integers(0, 2),
)
commits_of_events = st.lists(
    st.lists(times_us.map(lambda us: UserEvent("ann", us)), min_size=1, max_size=6)
    | times_us.map(ClockAt),
    min_size=1,
    max_size=5,
)


def oracle(commits, delay_us: int, since_us: int | None, after_us: int | None) -> list[LateGroup]:
    groups = defaultdict(list)
    for row in (row for commit in commits for row in commit):
        is_late = row.arrival_us is not None and row.time_us <= row.arrival_us - delay_us
        wanted = since_us is None or row.time_us >= since_us
        wanted &= after_us is None or row.ingested_us > after_us
        if row.event is not None and is_late and wanted:
            groups[row.ingested_us, instant_of(row.time_us).date()].append(row.time_us)
    return [
        LateGroup(day, ingested_us, len(times), min(times), max(times))
        for (ingested_us, day), times in sorted(groups.items())
    ]


@examples(40)
@given(
    commits_of_events,
    st.sampled_from([DELAY_US, 0, 3 * DELAY_US]),
    st.none() | times_us,
    st.none() | st.integers(0, 4),
)
def test_late_rows_are_those_of_bronze_however_its_files_lie(commits, delay_us, since_us, after):
    stamped = stamp(commits)
    after_us = None if after is None or after >= len(stamped) else stamped[after][0].ingested_us
    asked = (delay_us, since_us, after_us)
    with tempfile.TemporaryDirectory() as root:
        lake = Lake(root)
        assert late_groups(lake, SOURCE, *asked) == []
        for commit in stamped:
            for part in filter(None, (commit[::2], commit[1::2])):  # a file each
                append_commit(lake, SOURCE, FOLD, part)
        assert late_groups(lake, SOURCE, *asked) == oracle(stamped, *asked)
