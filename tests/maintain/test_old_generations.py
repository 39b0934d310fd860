"""Replaced generations' checkpoints go when their time is over, and nothing else ever does."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from include.fold.admission import micros_of
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.maintain.table_maintenance import maintain_ops, old_generations, unknown_folders
from include.registry import stream_named
from include.settings import SavepointRules
from tests.refused import refused
from tests.stream.entries import entry, record

COUNTS = stream_named("user_counts")
RETAINED = COUNTS.savepoints.keep_generations
NOW = datetime.now(UTC)
LONG_AGO, LATELY = NOW - RETAINED - timedelta(days=1), NOW - RETAINED + timedelta(days=1)


def make_checkpoint(lake: Lake, name: str) -> Path:
    checkpoint = Path(lake.root, "checkpoints", COUNTS.name, name)
    for file in ("metadata", "offsets/0", "state/0/1/1.changelog", "state/0/.1.crc"):
        (checkpoint / file).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / file).write_text("x" * 100)
    return checkpoint


def switch(lake: Lake, generation: int, at: datetime | None) -> None:
    """The stream runs on a generation since then; None: since its first run."""
    row = {} if at is None else {"switched_at_us": micros_of(at)}
    made = entry(0, "live", None, None, generation=generation)
    record(lake, made, COUNTS.name, row=row)
    make_checkpoint(lake, str(generation))


def folders(lake: Lake) -> set[str]:
    return {path.name for path in Path(lake.root, "checkpoints", COUNTS.name).glob("*")}


@pytest.mark.parametrize(
    ("switched", "gone"),
    [
        ((None,), []),
        ((None, LATELY), []),
        ((None, LONG_AGO), [1]),
        ((None, LONG_AGO, LATELY), []),
        ((None, LATELY, LONG_AGO), [1, 2]),
    ],
)
def test_those_go_that_the_newest_one_replaced_long_enough_ago(lake: Lake, switched, gone):
    for generation, at in enumerate(switched, start=1):
        switch(lake, generation, at)
    before = folders(lake)
    maintain_ops(lake, [COUNTS])
    assert folders(lake) == before - set(map(str, gone))


def test_one_is_kept_for_as_long_as_the_stream_says_to_the_microsecond(lake: Lake):
    switch(lake, 1, None)
    switch(lake, 2, NOW)
    assert old_generations(lake, COUNTS, NOW + RETAINED - timedelta(microseconds=1)) == []
    assert old_generations(lake, COUNTS, NOW + RETAINED) == [1]
    with refused("wrong_setting"):
        SavepointRules(keep_generations=timedelta(0))


def test_a_stream_at_work_keeps_its_checkpoints_until_the_next_day(lake: Lake):
    switch(lake, 1, None)
    switch(lake, 2, LONG_AGO)
    Path(lake.checkpoint(COUNTS.name, 1), "metadata").unlink()  # by a deletion that was cut off
    with hold_lease(lake, f"stream-{COUNTS.name}"):
        maintain_ops(lake, [COUNTS])
    assert folders(lake) == {"1", "2"}
    maintain_ops(lake, [COUNTS])
    assert folders(lake) == {"2"}


def test_a_rebuild_in_between_is_seen_under_the_lease(lake: Lake, monkeypatch):
    """Generations found before the lease was got do not count."""
    switch(lake, 1, None)
    switch(lake, 2, LONG_AGO)
    answers = iter([[1], []])
    monkeypatch.setattr(
        "include.maintain.table_maintenance.old_generations", lambda *_: next(answers)
    )
    maintain_ops(lake, [COUNTS])
    assert folders(lake) == {"1", "2"}


def test_folders_that_nobody_knows_are_left_alone(lake: Lake):
    switch(lake, 1, None)
    switch(lake, 2, LONG_AGO)
    for name in ("7", "01", "1.bak"):
        make_checkpoint(lake, name)
    Path(lake.root, "checkpoints", COUNTS.name, "note.txt").write_text("mine")
    assert unknown_folders(lake, COUNTS) == ["01", "1.bak", "7"]
    maintain_ops(lake, [COUNTS])
    assert folders(lake) == {"2", "7", "01", "1.bak", "note.txt"}
