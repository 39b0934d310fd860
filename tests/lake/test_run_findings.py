"""What people are told of the calls that a run rejected."""

from datetime import UTC, datetime, timedelta

from include.lake.run_findings import findings_of_run

START = datetime(2026, 3, 1, tzinfo=UTC)
NOTHING = {"rows_late": 0, "rows_excluded": 0, "kept_without_timeout": 0, "stream": "user_counts"}


def batch(events: int, timeouts: int = 0, day: int = 0) -> dict[str, object]:
    at = START + timedelta(days=day)
    between = {"rejected_from": at, "rejected_to": at + timedelta(hours=1)}
    counts = {"rows_rejected": events, "timeouts_rejected": timeouts}
    return NOTHING | counts | (between if events or timeouts else {})


def test_a_run_that_rejected_nothing_finds_nothing():
    assert findings_of_run([batch(0), batch(0)], {}) == []
    assert findings_of_run([]) == []


def test_rejected_rows_are_found_with_their_time_and_the_way_out():
    (found,) = findings_of_run([batch(0), batch(2, 1, day=3), batch(1, day=1)], {"ann": 4})
    assert (found.finding, found.severity, found.count) == ("rows_rejected", "warning", 4)
    assert found.event_time_from == START + timedelta(days=1)
    assert found.event_time_to == START + timedelta(days=3, hours=1)
    assert "3 events and 1 timeout:" in found.detail
    assert "rejected/user_counts" in found.detail
    assert "`./stateful reseed user_counts --recompute --apply`" in found.action


def test_keys_that_fail_again_and_again_are_named_the_worst_first():
    keys = {f"user {n}": n for n in range(8, 18)} | {"x" * 99: 50}
    _, again = findings_of_run([batch(200)], keys)
    assert (again.finding, again.severity, again.count) == ("key_rejected_again", "warning", 8)
    worst = f"'{'x' * 60}...' (50), 'user 17' (17), 'user 16' (16), 'user 15' (15), 'user 14' (14)"
    assert again.detail.endswith(worst)


def test_ten_times_are_not_again_and_again():
    assert len(findings_of_run([batch(20)], {"ann": 10, "bob": 10})) == 1
    assert len(findings_of_run([batch(21)], {"ann": 11, "bob": 10})) == 2
