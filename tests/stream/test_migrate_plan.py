"""The plan of a migration, and its refusals. Without a JVM."""

import sys
from dataclasses import replace
from datetime import datetime

import pytest

from include.fold.admission import EPOCH, MICROSECOND, instant_of, micros_of
from include.fold.product_table import ensure_product
from include.stream.bronze import newest_bronze
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions, plan_rebuild
from include.stream_definition import load_definition, pinned_settings
from include.streams.device_signals import Signal
from tests.bronze import append_commit, stamp
from tests.changed_stream import MODULE, NAME, NEW, NEW_STATE, OLD, STREAM, deployed_in, fold_of
from tests.refused import refused
from tests.stream.entries import entry, record
from tests.written_savepoint import written_savepoint

pytestmark = pytest.mark.slow

START_US = 1_750_032_000_000_000
SECOND_US = 1_000_000
MAPPED = RebuildOptions(migrate_state=True)
MENDS = f"./stateful rebuild {NAME} --full-refresh --apply"


class Lived:
    """A lake in which the stream has run under its old code, with three events a second."""

    def __init__(self, lake, files) -> None:
        self.lake, self.files = lake, files
        old = files.deploy(OLD)
        times = [START_US + second * SECOND_US for second in range(6)]
        (rows,) = stamp([[Signal(key, time_us, 1) for time_us in times for key in range(3)]])
        append_commit(lake, STREAM.source, fold_of(old), rows)
        self.code = open_stream(lake, STREAM).identity.code
        self.pins = pinned_settings(STREAM, fold_of(old))
        self.bronze_id = newest_bronze(lake, STREAM.source).table_id
        ensure_product(lake.table(NAME), load_definition(STREAM))
        row = self.pins | {"code": self.code}
        self.cover("live", None, at(6), row)

    def cover(self, kind: str, from_: datetime | None, until: datetime, row, **columns) -> None:
        """Record that the table has the rows until then, by the code of the generation's row."""
        from_us = None if from_ is None else micros_of(from_)
        known = {"codes": (row["code"],), "bronze_id": self.bronze_id} | columns
        record(self.lake, entry(0, kind, from_us, micros_of(until), **known), NAME, row=row)

    def savepoint(self, second: int, **columns) -> str:
        """One of all events before that second, but for what `columns` say."""
        made = {
            "savepoint_id": f"{second}-{len(columns)}",
            "events": 3 * second,
            "bronze_id": newest_bronze(self.lake, STREAM.source).table_id,
            "code": self.code,
            "state_schema": self.pins["state_schema"],
        }
        return written_savepoint(self.lake, NAME, at(second), **made | columns).savepoint_id

    def starting_id(self, options: RebuildOptions = MAPPED) -> str | None:
        starting = plan_rebuild(open_stream(self.lake, STREAM), options).starting
        assert starting.savepoint is None or starting.mapped == options.migrate_state
        return starting.savepoint.savepoint_id if starting.savepoint else None


def at(second: int) -> datetime:
    return EPOCH + (START_US + second * SECOND_US) * MICROSECOND


@pytest.fixture
def lived(lake, tmp_path, monkeypatch):
    yield Lived(lake, deployed_in(tmp_path, monkeypatch))
    sys.modules.pop(MODULE, None)


def test_a_migration_starts_with_the_newest_valid_savepoint_of_the_state_that_the_stream_ran_on(
    lived,
):
    valid = lived.savepoint(2)
    lived.savepoint(1)
    lived.savepoint(3, events=8)  # without a late row
    lived.savepoint(4, code=None)  # of two codes
    lived.savepoint(4, code="another", kind="rebuild")
    lived.savepoint(5, bronze_id="another", events=15, kind="restate")
    lived.files.deploy(NEW)
    now = open_stream(lived.lake, STREAM).identity
    lived.savepoint(5, code=now.code, state_schema=now.state_schema)
    assert lived.starting_id() == valid
    plan = plan_rebuild(open_stream(lived.lake, STREAM), MAPPED)
    assert plan.row["code"] == f"{now.code}+{valid}"
    assert instant_of(plan.starting.until_us) == at(2)


def test_it_is_not_after_the_instant_that_is_asked_for(lived):
    early, _ = lived.savepoint(1), lived.savepoint(3)
    lived.files.deploy(NEW)
    assert lived.starting_id(replace(MAPPED, until=at(2))) == early


@pytest.mark.parametrize(
    ("source", "options", "code", "command"),
    [
        (NEW, replace(MAPPED, full_refresh=True), "wrong_argument", None),
        (OLD, MAPPED, "nothing_there", f"./stateful rebuild {NAME} --apply"),
        (NEW_STATE, MAPPED, "not_migratable", MENDS),
        (f"{NEW_STATE}\nmigrate_state = 1\n", MAPPED, "wrong_setting", None),
        (NEW.replace("device_id: int", "device_id: str"), MAPPED, "not_migratable", MENDS),
        (NEW.replace("EventTime", "ProcessingTime"), MAPPED, "not_migratable", MENDS),
        (NEW, MAPPED, "not_migratable", f"./stateful savepoint {NAME}"),
        (NEW, replace(MAPPED, forward=True), "wrong_argument", None),
        (NEW, RebuildOptions(forward=True), "not_migratable", MENDS),
        (NEW, replace(MAPPED, until=at(1)), "not_migratable", f"./stateful rebuild {NAME} --apply"),
    ],
)
def test_what_cannot_be_migrated_is_refused(lived, source, options, code, command):
    lived.savepoint(2, code=None if "savepoint" in (command or "") else lived.code)
    lived.files.deploy(source)
    stream = STREAM
    if "ProcessingTime" in source:
        stream = replace(STREAM, watermark_delay=0 * STREAM.watermark_delay)
    with refused(code, command=command):
        plan_rebuild(open_stream(lived.lake, stream), options)


def test_a_stream_that_never_ran_has_nothing_to_migrate(lake, tmp_path, monkeypatch):
    deployed_in(tmp_path, monkeypatch).deploy(NEW)
    with refused("nothing_there", subject=NAME):
        plan_rebuild(open_stream(lake, STREAM), MAPPED)
    sys.modules.pop(MODULE, None)
