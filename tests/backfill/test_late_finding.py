"""What the finding on late rows asks people to do, and for which dates."""

from datetime import UTC, datetime, timedelta

from include.backfill.late_dates import LateDate, late_finding
from include.streams import stream_named

STREAM = stream_named("user_counts")
START = datetime(2026, 3, 1, tzinfo=UTC)


def late_dates(*days: int) -> list[LateDate]:
    instants = [START + timedelta(days=day) for day in days]
    return [LateDate(i.date(), 2, i, i + timedelta(hours=1)) for i in instants]


def test_nothing_is_asked_for_without_dates():
    assert late_finding(STREAM, "append", []) is None


def test_the_finding_says_what_to_enter_into_the_dialog():
    finding = late_finding(STREAM, "append", late_dates(0, 1, 4))
    assert finding is not None
    assert (finding.finding, finding.severity) == ("late_rows_not_recomputed", "warning")
    assert finding.count == 6
    assert finding.event_time_from == START
    assert finding.event_time_to == START + timedelta(days=4, hours=1)
    assert "2026-03-01, 2026-03-02, 2026-03-05" in finding.detail
    dialog = (
        "Dag stream_user_counts: From 2026-03-01 00:00, To 2026-03-02 23:59; "
        "then From 2026-03-05 00:00, To 2026-03-05 23:59 (UTC), Reprocess Behavior: All Runs"
    )
    assert dialog in finding.action
    assert "`make reseed STREAM=user_counts APPLY=1`" in finding.action


def test_an_update_table_is_reseeded():
    finding = late_finding(STREAM, "update", late_dates(0))
    assert finding is not None
    assert "`make reseed STREAM=user_counts APPLY=1`" in finding.action
    assert "Reprocess" not in finding.action


def test_of_many_dates_the_first_five_are_named():
    finding = late_finding(STREAM, "append", late_dates(*range(0, 14, 2)))
    assert finding is not None
    assert "2026-03-09 and 2 more" in finding.detail
    assert "2026-03-11" not in finding.detail + finding.action
    assert "; and 2 more" in finding.action
    assert finding.count == 14
