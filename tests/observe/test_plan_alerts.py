"""What the daily care of tables tells of is over when a look at the table says so, and not before."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from include.ingest.ingest import ingest
from include.maintain.table_care import plan_table_care
from include.observe.alerts import looks_at_tables
from include.registry import source_named
from include.settings import TABLE_CARE
from tests.dags import land
from tests.observe.lakes import NOON

NAME = "bronze/user_events"
EVENT = '{"user_id": "a", "event_type": "view", "value": 1, "event_time": "2026-03-01T00:00:00Z"}'


class Days:
    """What people are told of bronze on one day after the other."""

    def __init__(self, lake):
        self.lake, self.day = lake, 0
        self.known: dict[str, Any] = {}

    def look(self) -> list[tuple[str, str]]:
        now = NOON + timedelta(days=self.day)
        self.day += 1
        looks = looks_at_tables(plan_table_care(self.lake, TABLE_CARE, now))
        found = []
        for look in (look for look in looks if look.subject == NAME):
            opened, closed = look.news(self.known)
            found += [("opened", row["finding"]) for row in opened]
            found += [("closed", row["finding"]) for row in closed]
            self.known = look.told(self.known, now)
        return found


@pytest.fixture
def days(lake):
    """Bronze has lost a file, and people know. A copy of all of it is in `copy`."""
    land(lake, EVENT)
    ingest(lake, source_named("user_events"))
    bronze = Path(lake.bronze("user_events"))
    shutil.copytree(bronze, bronze.parent / "copy")
    Path(DeltaTable(str(bronze)).file_uris()[0].removeprefix("file://")).unlink()
    days = Days(lake)
    assert days.look() == [("opened", "files_lost")]
    return days


def put_back(lake) -> None:
    bronze = Path(lake.bronze("user_events"))
    shutil.rmtree(bronze, ignore_errors=True)
    shutil.copytree(bronze.parent / "copy", bronze)


def test_a_table_that_is_gone_closes_nothing_until_it_is_back(lake, days):
    shutil.rmtree(lake.bronze("user_events"))
    assert days.look() == []
    put_back(lake)
    assert days.look() == [("closed", "files_lost")]
    assert days.look() == []


def test_a_log_that_cannot_be_read_closes_nothing(lake, days):
    newest = max(Path(lake.bronze("user_events"), "_delta_log").glob("*.json"))
    newest.write_text('{"add": garbage')
    assert days.look() == [("opened", "table_unreadable")]
    put_back(lake)
    assert sorted(days.look()) == [("closed", "files_lost"), ("closed", "table_unreadable")]


def test_a_table_that_never_was_there_is_nothing_to_tell_of(lake):
    assert Days(lake).look() == []
