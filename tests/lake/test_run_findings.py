"""What people are told of the dead letters of a batch."""

import re
from datetime import UTC, datetime, timedelta

from include.lake.findings import dead_letters_findings

START = datetime(2026, 3, 1, tzinfo=UTC)
BETWEEN = (START + timedelta(days=1), START + timedelta(days=3, hours=1))


def test_keys_that_fail_again_and_again_are_named_the_worst_first():
    keys = {f"user {n}": n for n in range(8, 18)} | {"x" * 99: 50}
    _, again = dead_letters_findings("user_counts", 200, 0, BETWEEN, keys)
    assert (again.finding, again.severity, again.count) == ("key_dead_lettered_again", "warning", 8)
    named = re.findall(r"'(.+?)' \((\d+)\)", again.detail)
    assert named == [("x" * 60 + "...", "50"), *((f"user {n}", str(n)) for n in (17, 16, 15, 14))]


def test_ten_times_are_not_again_and_again():
    assert len(dead_letters_findings("user_counts", 20, 0, BETWEEN, {"ann": 10, "bob": 10})) == 1
    assert len(dead_letters_findings("user_counts", 21, 0, BETWEEN, {"ann": 11, "bob": 10})) == 2
