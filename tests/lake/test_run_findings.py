"""What people are told of the calls that a batch rejected."""

from datetime import UTC, datetime, timedelta

from include.lake.findings import rejected_findings

START = datetime(2026, 3, 1, tzinfo=UTC)
BETWEEN = (START + timedelta(days=1), START + timedelta(days=3, hours=1))


def test_rejected_rows_are_found_with_their_time_and_the_way_out():
    (found,) = rejected_findings("user_counts", 3, 1, BETWEEN, {"ann": 4})
    assert (found.finding, found.severity, found.count) == ("rows_rejected", "warning", 4)
    assert (found.event_time_from, found.event_time_to) == BETWEEN
    assert "3 events and 1 timeout:" in found.detail
    assert "rejected/user_counts" in found.detail
    assert "`./stateful reseed user_counts --recompute --apply`" in found.action


def test_keys_that_fail_again_and_again_are_named_the_worst_first():
    keys = {f"user {n}": n for n in range(8, 18)} | {"x" * 99: 50}
    _, again = rejected_findings("user_counts", 200, 0, BETWEEN, keys)
    assert (again.finding, again.severity, again.count) == ("key_rejected_again", "warning", 8)
    worst = f"'{'x' * 60}...' (50), 'user 17' (17), 'user 16' (16), 'user 15' (15), 'user 14' (14)"
    assert again.detail.endswith(worst)


def test_ten_times_are_not_again_and_again():
    assert len(rejected_findings("user_counts", 20, 0, BETWEEN, {"ann": 10, "bob": 10})) == 1
    assert len(rejected_findings("user_counts", 21, 0, BETWEEN, {"ann": 11, "bob": 10})) == 2
