"""The status of a stream: the verdict instant by instant, its findings, and `./stateful status`."""

import json
import shlex
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.cli.__main__ import main
from include.fold.admission import instant_of, micros_of
from include.lake.paths import Lake
from include.registry import stream_named
from include.stream import stream_status as judging
from include.stream.rebuild_plan import RebuildOptions
from include.stream.record import BEGINNING_US
from include.stream.status_report import next_command, status_record
from include.stream.stream_identity import what_changed
from include.stream.stream_status import (
    LateGroup,
    Span,
    TableStatus,
    judge,
    late_groups,
    status_findings,
    stream_status,
)
from include.streams.user_counts import FOLD, UserEvent
from spark_jobs.compact_state import compact
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.run_stream import drain
from spark_jobs.write_savepoint import savepoint
from tests.bronze import ClockAt, append_commit, stamp
from tests.examples import examples
from tests.refused import commands_in, refused
from tests.simulator.oracle import Landed
from tests.simulator.world import START_US as START_OF_WORLD_US
from tests.simulator.world import World, open_world
from tests.stream.entries import IDENTITY, TICKS, entry, entry_at, entry_lists

LAKE = Lake("/nowhere")
late_rows = st.lists(
    st.builds(
        lambda ingested, first, more: LateGroup(date(2026, 1, 1), ingested, 1, first, first + more),
        st.integers(0, 6),
        st.integers(-1, TICKS),
        st.integers(0, 2),
    ),
    max_size=4,
)


def judged(entries, late, identity=IDENTITY):
    """The verdict, bronze having these late rows under each delay."""

    def groups(lake, source, delay_us, since_us, after_us):
        return [g for g in late if after_us is None or g.ingested_at_us > after_us]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(judging, "late_groups", groups)
        return judge(LAKE, entries, identity)


def reason_at(entries, late, tick: int) -> str | None:
    """Why the table is not right at the tick, by the definition."""
    one = entry_at(entries, tick)
    if one is None:
        return "not recorded"
    if not set(one.codes) <= {"a"}:
        return "other code"
    bronze = one.bronze_ingested_at_us
    lacks = [
        group
        for group in late
        if group.first_us <= tick and (bronze is None or group.ingested_at_us > bronze)
    ]
    return "late rows" if lacks else None


@examples(2_000)
@given(entry_lists(), late_rows)
def test_each_instant_is_judged_as_the_definition_says(entries, late):
    table_status = judged(entries, late)
    newest = next((one for one in reversed(entries) if one.kind != "restate"), None)
    recorded = [t + 1 for t in range(TICKS) if newest and entry_at(entries, t)]
    ends = [*recorded, *([newest.until_us] if newest and newest.until_us is not None else [])]
    assert table_status.until_us == max(ends, default=None)
    if table_status.until_us is None:
        return
    for tick in range(-3, table_status.until_us):
        (span,) = [span for span in table_status.spans if span.from_us <= tick < span.until_us]
        assert span.reason == reason_at(entries, late, tick)
    wrong = [t for t in range(-3, table_status.until_us) if reason_at(entries, late, t)]
    assert max(table_status.right_until_us, -3) == min(wrong, default=table_status.until_us)


def test_an_update_table_is_right_or_wrong_as_a_whole():
    identity = replace(IDENTITY, output_mode="update")
    entries, late = [entry(1, "live", None, 9)], [LateGroup(date(2026, 1, 1), 3, 2, 5, 6)]
    assert [span.reason for span in judged(entries, [], identity).spans] == [None]
    assert [span.reason for span in judged(entries, late, identity).spans] == ["late rows"]
    after = [LateGroup(date(2026, 1, 1), 3, 2, 9, 9)]
    assert judged(entries, after, identity).wrong == ()


def test_a_mapping_stands_for_the_code_before_it_and_that_one_for_its_own():
    entries = [
        entry(1, "live", None, 3, codes=("old",)),
        entry(2, "rebuild", 3, 6, codes=("b+1",), mapped_from="old", bronze_ingested_at_us=0),
        entry(3, "rebuild", 6, 9, codes=("a+2",), mapped_from="b+1", bronze_ingested_at_us=0),
    ]
    mapped = replace(IDENTITY, code="a+2")
    assert judged(entries, [], mapped).wrong == ()
    assert [span.until_us for span in judged(entries, []).wrong] == [9]


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


START = datetime(2026, 3, 1, tzinfo=UTC)
END_US = micros_of(START + timedelta(days=20))


def groups(*days: int) -> tuple[LateGroup, ...]:
    instants = [START + timedelta(days=day) for day in days]
    return tuple(
        LateGroup(i.date(), 0, 2, micros_of(i), micros_of(i + timedelta(hours=1))) for i in instants
    )


def found(*spans: Span, live: Span | None = None, is_append: bool = True):
    table_status = TableStatus(END_US, spans, live or Span(END_US, END_US, None))
    return status_findings(STREAM.name, table_status, is_append)


def late(from_us: int, *days: int) -> Span:
    return Span(from_us, END_US, "late rows", groups(*days))


def test_a_table_that_is_right_says_nothing():
    assert found(Span(BEGINNING_US, END_US, None)) == []


def test_the_finding_names_the_dates_and_the_commands():
    (finding,) = found(late(micros_of(START), 0, 1, 4))
    assert (finding.finding, finding.severity) == ("late_rows_not_restated", "warning")
    assert finding.count == 6
    assert finding.event_time_from == START  # from then on the table is wrong, to its end
    assert finding.event_time_to == START + timedelta(days=20)
    assert commands_in(finding.action) == [
        "restate user_counts 2026-03-01 2026-03-06",
        "rebuild user_counts --apply",
    ]


def test_a_command_ends_where_the_table_does_which_may_be_within_the_day():
    at = START + timedelta(hours=13, microseconds=1)
    rows = (LateGroup(START.date(), 0, 1, micros_of(START), micros_of(START)),)
    table_status = TableStatus(
        micros_of(at), (Span(BEGINNING_US, micros_of(at), "late rows", rows),), None
    )
    (finding,) = status_findings(STREAM.name, table_status, True)
    command = "restate user_counts 2026-03-01 2026-03-01T13:00:00.000001Z"
    assert commands_in(finding.action)[0] == command


AFTER_A_DAY = micros_of(START + timedelta(days=1))
LATE_LIVE = Span(END_US, END_US, "late rows", groups(0))
PROVED_BY_NOTHING = (
    Span(BEGINNING_US, micros_of(START), "not recorded"),
    Span(micros_of(START), END_US, "other code"),
)


@pytest.mark.parametrize(
    ("spans", "live", "is_append", "name", "since"),
    [
        ([late(BEGINNING_US, 0)], None, False, "late_rows_not_restated", None),
        # The dates were restated: what follows them is left to a rebuild.
        ([late(AFTER_A_DAY, 0)], None, True, "state_lacks_rows", START + timedelta(days=1)),
        ([], LATE_LIVE, True, "state_lacks_rows", START + timedelta(days=20)),
        (PROVED_BY_NOTHING, None, True, "table_not_right", None),
    ],
)
def test_what_no_restatement_mends_is_rebuilt(spans, live, is_append, name, since):
    (finding,) = found(*spans, live=live, is_append=is_append)
    assert (finding.finding, finding.event_time_from) == (name, since)
    assert finding.event_time_to == START + timedelta(days=20)
    assert commands_in(finding.action) == ["rebuild user_counts --apply"]


def test_what_is_of_before_a_mapping_names_the_only_way_that_makes_it_right():
    spans = (late(BEGINNING_US, 1), Span(BEGINNING_US, END_US, "other code"))
    table_status = TableStatus(END_US, spans, Span(END_US, END_US, "late rows", groups(1)))
    way = "rebuild user_counts --full-refresh --apply"
    for is_mapped in (True, False):
        findings = status_findings(STREAM.name, table_status, True, is_mapped=is_mapped)
        assert [way in commands_in(each.action) for each in findings] == [is_mapped] * 2


KIND, WORLD_START = "counts", instant_of(START_OF_WORLD_US)


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as opened:
        yield opened


def status(world: World) -> dict[str, Any]:
    status = stream_status(world.lake, world.streams[KIND])
    changes = what_changed(world.lake, world.streams[KIND], status.opened.generations)
    mend = next_command(status, changes)
    return status_record(status) | {"changed": changes, "mend": mend}


def land(world: World, hour: int) -> None:
    """Rows of an hour; the watermark goes on to its end."""
    world.now_us = micros_of(WORLD_START + timedelta(hours=hour + 1))
    at_us = micros_of(WORLD_START + timedelta(hours=hour)) + 5
    world.ingest([Landed(key, at_us, 1) for key in "ab"])


def run(world: World) -> None:
    drain(world.engine, world.lake, world.streams[KIND])


def some_hours(world: World, hours: int = 4) -> None:
    for hour in range(hours):
        land(world, hour)
        run(world)


@pytest.mark.slow
@pytest.mark.parametrize("job", [savepoint, compact])
def test_a_state_of_another_schema_is_not_read_by_the_file_of_now(world, job):
    some_hours(world, 1)
    world.deploy(KIND, "d")
    with refused("settings_changed", subject="state_schema"):
        job(world.engine, world.lake, world.streams[KIND])


@pytest.mark.slow
@pytest.mark.parametrize("decided", ["rebuild", "run"])
def test_new_code_waits_for_a_person_where_the_entry_says_so(world, decided):
    some_hours(world)
    world.deploy(KIND, "b")
    stream = world.configure(KIND, on_code_change="stop")
    land(world, 4)
    before = status(world)
    for _ in range(2):
        with refused("code_changed", subject=stream.name):
            run(world)
    assert status(world) == before
    if decided == "rebuild":
        rebuild(world.engine, world.lake, stream, RebuildOptions())
    else:
        world.configure(KIND, on_code_change="run")
        run(world)
        world.configure(KIND, on_code_change="stop")
    land(world, 5)
    run(world)
    assert status(world)["is_right"] == (decided == "rebuild")


def test_all_streams_are_shown_where_none_is_named(tmp_path, capsys):
    (tmp_path / "ops").mkdir()
    assert main(shlex.split(f"status --json --lake {tmp_path}")) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"./stateful stream user_counts"} <= {each["mend"]["command"] for each in found}
    assert main(shlex.split(f"status --lake {tmp_path}")) == 0
    assert "user_counts has nothing complete yet" in capsys.readouterr().out
