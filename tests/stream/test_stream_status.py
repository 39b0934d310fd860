"""What `./stateful status` says: the verdict by the code of now, what has changed, and what mends it."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from include.cli.__main__ import main
from include.stream.reseed_plan import ReseedOptions
from include.stream.status_report import mend_of, status_record
from include.stream.stream_identity import what_changed
from include.stream.stream_status import stream_status
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.refused import refused
from tests.simulator.world import World, open_world
from tests.stream.test_ledger import land, some_hours

KIND = "counts"


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as opened:
        yield opened


def told(world: World) -> dict[str, Any]:
    status = stream_status(world.lake, world.streams[KIND])
    changes = what_changed(world.lake, world.streams[KIND], status.opened.generations)
    mend = mend_of(status, bool(changes))
    return status_record(status) | {"changed": changes, "mend": mend}


def run(world: World) -> None:
    drain(world.engine, world.lake, world.streams[KIND])


@pytest.mark.slow
def test_an_edited_function_is_seen_before_any_run_and_mended_by_what_is_named(world):
    some_hours(world)
    right = told(world)
    assert (right["is_right"], right["changed"], right["mend"]) == (True, [], None)
    world.deploy(KIND, "b")
    wrong = told(world)
    assert {span["reason"] for span in wrong["wrong"]} == {"other code"}
    assert [found["finding"] for found in wrong["findings"]] == ["table_not_right"]
    assert wrong["changed"]
    assert wrong["mend"].command == f"./stateful reseed {world.streams[KIND].name} --apply"
    assert wrong["mend"].rows == 6  # of three hours: the fourth is not settled yet
    reseed(world.engine, world.lake, world.streams[KIND], ReseedOptions())
    mended = told(world)
    assert (mended["is_right"], mended["changed"], mended["mend"]) == (True, [], None)


@pytest.mark.slow
@pytest.mark.parametrize("decided", ["reseed", "run"])
def test_new_code_waits_for_a_person_where_the_entry_says_so(world, decided):
    some_hours(world)
    world.deploy(KIND, "b")
    stream = world.configure(KIND, on_code_change="stop")
    land(world, 4)
    before = told(world)
    for _ in range(2):
        with refused("code_changed", subject=stream.name):
            run(world)
    assert told(world) == before
    if decided == "reseed":
        reseed(world.engine, world.lake, stream, ReseedOptions())
    else:
        world.configure(KIND, on_code_change="run")
        run(world)
        world.configure(KIND, on_code_change="stop")
    land(world, 5)
    run(world)
    assert told(world)["is_right"] == (decided == "reseed")


def test_all_streams_are_told_of_where_none_is_named(tmp_path, capsys):
    (tmp_path / "ops").mkdir()
    assert main(shlex.split(f"status --json --lake {tmp_path}")) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"./stateful stream user_counts"} <= {each["mend"]["command"] for each in found}
    assert main(shlex.split(f"status --lake {tmp_path}")) == 0
    assert "user_counts has nothing complete yet" in capsys.readouterr().out
