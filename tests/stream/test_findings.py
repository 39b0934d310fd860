"""What people are told of a table that is not right."""

from datetime import UTC, datetime, timedelta

from include.fold.admission import micros_of
from include.registry import stream_named
from include.stream.judge import Coverage, LateGroup, Span, coverage_findings
from include.stream.record import BEGINNING_US
from tests.refused import commands_in

STREAM = stream_named("user_counts")
START = datetime(2026, 3, 1, tzinfo=UTC)
END_US = micros_of(START + timedelta(days=20))


def groups(*days: int) -> tuple[LateGroup, ...]:
    instants = [START + timedelta(days=day) for day in days]
    return tuple(
        LateGroup(i.date(), 0, 2, micros_of(i), micros_of(i + timedelta(hours=1))) for i in instants
    )


def found(*spans: Span, live: Span | None = None, is_append: bool = True):
    coverage = Coverage(END_US, spans, live or Span(END_US, END_US, None))
    return coverage_findings(STREAM.name, coverage, is_append)


def late(from_us: int, *days: int) -> Span:
    return Span(from_us, END_US, "late rows", groups(*days))


def test_a_table_that_is_right_says_nothing():
    assert found(Span(BEGINNING_US, END_US, None)) == []


def test_the_finding_names_the_dates_and_the_commands():
    (finding,) = found(late(micros_of(START), 0, 1, 4))
    assert (finding.finding, finding.severity) == ("late_rows_not_recomputed", "warning")
    assert finding.count == 6
    assert finding.event_time_from == START  # from then on the table is wrong, to its end
    assert finding.event_time_to == START + timedelta(days=20)
    assert commands_in(finding.action) == [
        "recompute user_counts 2026-03-01 2026-03-06",
        "reseed user_counts --apply",
    ]


def test_a_command_ends_where_the_table_does_which_may_be_within_the_day():
    at = START + timedelta(hours=13, microseconds=1)
    rows = (LateGroup(START.date(), 0, 1, micros_of(START), micros_of(START)),)
    coverage = Coverage(
        micros_of(at), (Span(BEGINNING_US, micros_of(at), "late rows", rows),), None
    )
    (finding,) = coverage_findings(STREAM.name, coverage, True)
    command = "recompute user_counts 2026-03-01 2026-03-01T13:00:00.000001Z"
    assert commands_in(finding.action)[0] == command


def test_an_update_table_is_reseeded():
    (finding,) = found(late(BEGINNING_US, 0), is_append=False)
    assert commands_in(finding.action) == ["reseed user_counts --apply"]
    assert finding.event_time_from is None  # the beginning


def test_dates_that_were_recomputed_leave_what_follows_to_a_reseed():
    after = micros_of(START + timedelta(days=1))
    (finding,) = found(late(after, 0))
    assert finding.finding == "state_lacks_rows"
    span = (START + timedelta(days=1), START + timedelta(days=20))
    assert (finding.event_time_from, finding.event_time_to) == span


def test_a_live_state_that_lacks_rows_is_named_though_the_table_is_right():
    (finding,) = found(live=Span(END_US, END_US, "late rows", groups(0)))
    assert (finding.finding, finding.count) == ("state_lacks_rows", 2)


def test_what_nothing_proves_is_named_with_its_cause():
    (finding,) = found(
        Span(BEGINNING_US, micros_of(START), "not recorded"),
        Span(micros_of(START), END_US, "other code"),
    )
    assert finding.finding == "table_not_right"
    assert commands_in(finding.action) == ["reseed user_counts --apply"]


def test_what_is_of_before_a_mapping_names_the_only_way_that_makes_it_right():
    spans = (late(BEGINNING_US, 1), Span(BEGINNING_US, END_US, "other code"))
    coverage = Coverage(END_US, spans, Span(END_US, END_US, "late rows", groups(1)))
    way = "reseed user_counts --recompute --apply"
    for is_mapped in (True, False):
        told = coverage_findings(STREAM.name, coverage, True, is_mapped=is_mapped)
        assert [way in commands_in(each.action) for each in told] == [is_mapped] * 2
