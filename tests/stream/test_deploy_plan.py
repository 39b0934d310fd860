"""`./stateful plan` and `apply`: what is said of each change of folder and lake, and carried out of it."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from include import registry
from include.cli import commands, deploy
from include.cli.__main__ import main
from include.lake.errors import SettingsError
from include.stream import deploy_plan
from include.stream.deploy_plan import WIDTH
from include.stream.manifest import savepoints_of
from include.stream.stream_status import Statuses, stream_status
from spark_jobs.run_stream import drain
from tests.faults.command_line import CommandLine, Report
from tests.simulator.auditor import Auditor
from tests.simulator.oracle import Landed
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, World, open_world
from tests.simulator.writes import killed_at

pytestmark = pytest.mark.slow

KIND, NAME = "counts", "sim_counts"
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Streams that have run for some hours."""
    with open_world() as opened:
        for _ in range(4):
            opened.pass_time(HOUR)
            land(opened)
            run_all(opened)
        return opened.copied(tmp_path_factory.mktemp("begun"))


@pytest.fixture
def world(begun):
    with open_world() as opened:
        opened.go_on(begun)
        yield opened


def land(world: World, ago: int = 0) -> None:
    world.ingest([Landed(key, world.now_us - ago * MINUTE_US, 1) for key in "ab"])


def run_all(world: World) -> None:
    for stream in world.streams.values():
        drain(world.engine, world.lake, stream)


def plan_of(world: World, capsys, *options: str) -> tuple[int, dict[str, Any]]:
    code = main(["plan", "--check", "--json", "--lake", world.lake.root, *options])
    return code, json.loads(capsys.readouterr().out)


def planned(record: dict[str, Any], name: str = NAME) -> dict[str, Any]:
    return next(each for each in record["streams"] if each["stream"] == name)


@pytest.fixture
def typed(world):
    """Commands as a person types them; jobs run by the world's engine."""
    with typing(world) as typed:
        yield typed


@contextmanager
def typing(world: World) -> Iterator[Callable[[str], Report]]:
    line = CommandLine(lambda: world.engine)
    with line.installed():
        yield lambda command: line.stateful(world.lake.root, command)


def land_late(world: World) -> None:
    land(world, ago=150)


def delete_file(world: World) -> None:
    del world.streams[KIND]


def break_file(world: World) -> None:
    world.configure(KIND, source="gone")


CHANGES: dict[str, tuple[Callable[[World], object], int, dict[str, Any]]] = {
    "nothing": (lambda world: None, 0, {"state": "unchanged", "command": None}),
    "late rows": (
        land_late,
        4,
        {"state": "late rows", "what": "2 late rows (06-16)", "is_wrong": True},
    ),
    "another function": (
        lambda world: world.deploy(KIND, "b"),
        4,
        {"state": "new code", "changed": ["function amount"], "wrong_from": None},
    ),
    "another field of the state": (
        lambda world: world.deploy(KIND, "d"),
        4,
        {"state": "settings", "what": "class of the state"},
    ),
    "another delay": (
        lambda world: world.configure(KIND, watermark_delay=HOUR),
        4,
        {"state": "settings", "what": "watermark_delay", "is_wrong": False},
    ),
    "other buckets": (
        lambda world: world.configure(KIND, buckets=3),
        4,
        {"what": "buckets", "command": f"./stateful rebuild {NAME} --buckets 3 --apply"},
    ),
    "other partitions": (
        lambda world: world.configure(KIND, state_partitions=3),
        4,
        {"what": "state_partitions"},
    ),
    "a file deleted": (delete_file, 0, {"state": "gone", "command": None}),
    "a file that is wrong": (break_file, 2, {"state": "cannot be"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_told_by_name_and_after_apply_all_is_right(world, typed, capsys, change):
    do, exit_code, said = CHANGES[change]
    do(world)
    code, record = plan_of(world, capsys)
    assert (code, record["exit_code"]) == (exit_code, exit_code)
    assert {name: planned(record)[name] for name in said} == said
    others = {each["state"] for each in record["streams"] if each["stream"] != NAME}
    assert others == {"late rows" if change == "late rows" else "unchanged"}
    assert plan_of(world, capsys)[1] == record  # a function of folder and lake
    if exit_code != 2:
        assert typed(f"apply {record['plan']}").code == 0
        check_right(world, typed)


@pytest.mark.parametrize("late", [False, True])
def test_a_new_stream_is_run_or_rebuilt_where_a_run_would_leave_rows_out(capsys, late):
    with open_world() as world, typing(world) as typed:
        world.pass_time(5 * HOUR)
        land(world)
        if late:
            land_late(world)
        code, record = plan_of(world, capsys)
        command = f"./stateful rebuild {NAME} --apply" if late else f"./stateful stream {NAME}"
        found = planned(record)
        assert (code, found["state"], found["command"]) == (3, "new", command)
        rows = [each["rows"] for each in record["streams"]]
        assert record["rows"] == (sum(rows) if late else 0)
        assert all(rows)
        world.pass_time(HOUR)
        land(world)
        assert typed(f"apply {id_of(typed)}").code == 0
        check_right(world, typed)


def test_the_id_is_that_of_the_steps(world, capsys):
    ids = [plan_of(world, capsys)[1]["plan"]]
    for variant in "bca":
        world.deploy(KIND, variant)
        ids.append(plan_of(world, capsys)[1]["plan"])
    assert ids[0] == ids[3]
    assert len({each.partition("-")[0] for each in ids}) == 3


def test_a_table_that_others_have_changed_is_not_proved(world, capsys):
    world.lake.delete(world.lake.table(NAME))
    code, record = plan_of(world, capsys)
    assert (code, planned(record)["state"]) == (4, "not proved")
    assert planned(record)["command"] == f"./stateful rebuild {NAME} --apply"


def test_bronze_that_others_have_changed_is_for_people(world, capsys):
    world.lake.delete(world.lake.bronze("sent"))
    code, record = plan_of(world, capsys)
    assert code == 2
    assert {each["state"] for each in record["streams"]} == {"cannot be"}


def test_texts_fit_a_terminal_and_a_comment(world, capsys):
    land_late(world)
    world.deploy(KIND, "d")
    for options in ((), ("--markdown",)):
        assert main(["plan", "--lake", world.lake.root, *options]) == 0
        text = capsys.readouterr().out
        assert "./stateful apply" in text
        assert all(name in text for name in (NAME, "sim_silences", "sim_counts_per_key"))
        if options:
            table = [line for line in text.splitlines() if line.startswith("|")]
            assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {7}
            assert len(table) == 2 + 3
        else:
            assert max(map(len, text.splitlines())) <= WIDTH


def test_a_stream_that_cannot_be_judged_does_not_keep_the_others(world, capsys, monkeypatch):
    def fails(statuses, stream):
        if stream.name == NAME:
            raise SettingsError("it says why", subject=NAME, command="./stateful status")
        return real(statuses, stream)

    real = Statuses.of
    monkeypatch.setattr(Statuses, "of", fails)
    code, record = plan_of(world, capsys)
    assert (code, planned(record)["what"]) == (2, "it says why")
    assert planned(record, "sim_silences")["state"] == "unchanged"


def tables(world: World) -> dict[str, Any]:
    return {kind: world.table(kind) for kind in KINDS if kind in world.streams}


def check_right(world: World, typed: Callable[[str], Report]) -> None:
    """All tables are those of the oracle, say so, and nothing is left to do."""
    assert typed("plan --check").code == 0
    for kind in tables(world):
        assert stream_status(world.lake, world.streams[kind]).is_right
        Auditor(world, kind).check()
        assert world.table(kind)


def id_of(typed: Callable[[str], Report], options: str = "") -> str:
    plan: str = json.loads(typed(f"plan --json {options}").text)["plan"]
    return plan


def change_much(world: World) -> None:
    land_late(world)
    world.deploy(KIND, "b")
    world.configure("silences", watermark_delay=HOUR)


STRIDE = 7


@pytest.mark.parametrize(
    "first", [3, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2, 4, 5, 6, 7))]
)
def test_a_kill_in_each_step_and_then_again(begun, first):
    """A kill before a write, all over apply: what was approved is then finished."""
    for write in count(first, STRIDE):
        with open_world() as world, typing(world) as typed:
            world.go_on(begun)
            change_much(world)
            plan = id_of(typed)
            is_killed = killed_at(write, lambda typed=typed, plan=plan: typed(f"apply {plan}"))
            again = typed(f"apply {plan}")
            assert again.code == 0, (write, again.text)
            check_right(world, typed)
        if not is_killed:
            break
    assert write > 12


def test_a_deploy_between_plan_and_apply_is_refused(world, typed):
    change_much(world)
    plan, before = id_of(typed), tables(world)
    world.deploy(KIND, "c")
    refused = typed(f"apply {plan}")
    assert (refused.code, refused.commands) == (2, ["plan"])
    assert "(plan_changed)" in refused.error
    assert tables(world) == before
    world.deploy(KIND, "b")
    assert typed(f"apply {plan}").code == 0
    check_right(world, typed)


@pytest.mark.parametrize("other", [KIND, "silences"])
def test_a_deploy_during_apply_is_refused_by_the_step_or_its_job(world, typed, monkeypatch, other):
    """Its own file changes when it has been compared and its job has not started; or a later one's."""
    change_much(world)
    plan, real, jobs = id_of(typed), commands.run_job, []

    def run_job(job, args, *more):
        jobs.append(args[1])
        world.deploy(other, "c")
        return real(job, args, *more)

    monkeypatch.setattr(commands, "run_job", run_job)
    refused = typed(f"apply {plan}")
    assert (refused.code, refused.commands[-1:]) == (2, ["plan"])
    assert jobs == ([NAME] if other == KIND else [NAME, "sim_counts_per_key"])
    monkeypatch.undo()


def test_more_rows_than_approved_by_half_are_refused(world, typed):
    world.deploy(KIND, "b")
    for more, code in ((0.25, 0), (1, 2)):
        plan = id_of(typed)
        for _ in range(int(int(plan.partition("-")[2]) * more / 2)):
            land(world)
        world.pass_time(HOUR)
        land(world)
        assert typed(f"apply {plan}").code == code
        world.deploy(KIND, "a")


def test_a_first_run_takes_what_has_come_in_since_the_plan():
    with open_world() as world, typing(world) as typed:
        plan = id_of(typed)  # when nothing is in bronze
        for _ in range(2):
            world.pass_time(HOUR)
            land(world)
        assert typed(f"apply {plan}").code == 0
        check_right(world, typed)


def test_what_cannot_be_is_not_applied(world, typed):
    change_much(world)
    world.configure("counts_per_key", source="gone")
    before = world.table(KIND)
    assert typed(f"apply {id_of(typed)}").code == 2
    assert world.table(KIND) == before


def run_of(world: World, typed: Callable[[str], Report], name: str = NAME) -> Report:
    """A run that finds new rows."""
    world.pass_time(HOUR)
    land(world)
    return typed(f"stream {name}")


def test_with_deploy_approve_new_code_waits_for_its_plan(world, typed, monkeypatch):
    monkeypatch.setenv("DEPLOY", "approve")
    world.deploy(KIND, "b")
    before = world.table(KIND)
    for refused in (run_of(world, typed), typed(f"rebuild {NAME} --apply")):
        assert (refused.code, refused.commands) == (2, ["plan"])
    assert world.table(KIND) == before
    assert run_of(world, typed, "sim_silences").code == 0
    assert typed(f"apply {id_of(typed)}").code == 0
    assert run_of(world, typed).code == 0
    assert stream_status(world.lake, world.streams[KIND]).is_right


def test_with_deploy_approve_a_first_run_waits_too(monkeypatch):
    monkeypatch.setenv("DEPLOY", "approve")
    with open_world() as world, typing(world) as typed:
        assert run_of(world, typed).code == 2
        assert not world.table(KIND)
        world.pass_time(HOUR)
        land(world)
        assert typed(f"apply {id_of(typed)}").code == 0
        check_right(world, typed)
        assert run_of(world, typed).code == 0


def test_another_value_of_deploy_is_refused(world, typed, monkeypatch):
    monkeypatch.setenv("DEPLOY", "approved")
    refused = run_of(world, typed)
    assert refused.code == 2
    assert "(wrong_setting)" in refused.error


def test_only_one_stream_is_planned_and_applied(world, typed):
    change_much(world)
    before, plan = tables(world), id_of(typed, f"--only {NAME}")
    assert plan != id_of(typed)
    assert typed(f"apply {plan}").code == 2  # it is no plan of all
    assert typed(f"apply {plan} --only {NAME}").code == 0
    assert {kind for kind, table in tables(world).items() if table != before[kind]} == {KIND}
    assert typed(f"plan --check --only {NAME}").code == 0
    assert typed("plan --check").code == 4


def test_a_part_of_a_whole_plan_is_applied_and_later_the_others(world, typed):
    change_much(world)
    plan = id_of(typed)
    assert typed(f"apply {plan} --only {NAME}").code == 0
    assert typed(f"apply {plan}").code == 0
    check_right(world, typed)


def test_an_unknown_stream_is_refused(world, typed):
    for option in ("--only", "--forward"):
        assert "(unknown_stream)" in typed(f"plan {option} none").error


@pytest.mark.parametrize("is_deployed", [False, True])
def test_forward_leaves_the_rows_that_the_former_code_made(world, typed, is_deployed):
    if is_deployed:
        world.deploy(KIND, "b")
    assert typed(f"savepoint {NAME}").code == 0
    if not is_deployed:
        assert run_of(world, typed).code == 0
    before, start_us = world.table(KIND), savepoints_of(world.lake, NAME)[-1].until_us
    world.deploy(KIND, "b")
    plan = id_of(typed, f"--forward {NAME}")
    assert plan != id_of(typed)
    assert typed(f"apply {plan}").code == 2
    done = typed(f"apply {plan} --forward {NAME}")
    assert done.code == 0, done.text
    check_right(world, typed)
    early = {row: n for row, n in before.items() if row.at_us < start_us}
    rows = world.table(KIND)
    assert early
    assert {row: n for row, n in rows.items() if row.at_us < start_us} == early
    assert (rows != before) == (not is_deployed)
    assert run_of(world, typed).code == 0
    Auditor(world, KIND).check()


@pytest.mark.parametrize(("variant", "state"), [("a", "unchanged"), ("d", "cannot be")])
def test_forward_is_for_new_code_over_the_same_state(world, capsys, variant, state):
    world.deploy(KIND, variant)
    record = plan_of(world, capsys, "--forward", NAME)[1]
    assert planned(record)["state"] == state


CHAIN = {"sim_silences": (NAME,), "sim_counts_per_key": ("sim_silences",)}


@pytest.fixture
def chained(monkeypatch):
    """The graph of a chain, as far as plans go: all read the one source."""
    for module in (registry, deploy_plan, deploy):
        monkeypatch.setattr(module, "parents_of", lambda name: CHAIN.get(name, ()))


def test_streams_behind_a_rebuilt_one_follow_it_and_are_left_out_where_they_are_right(
    world, typed, capsys, chained
):
    world.deploy(KIND, "b")
    code, record = plan_of(world, capsys)
    order = [NAME, "sim_silences", "sim_counts_per_key"]
    assert [each["stream"] for each in record["streams"]] == order
    states = [(each["state"], each["is_at_most"]) for each in record["streams"]]
    assert states == [("new code", False), ("upstream", True), ("upstream", True)]
    assert (code, planned(record)["descendants"]) == (4, order[1:])
    assert typed(f"plan --check --only {order[2]}+").code == 4
    before = tables(world)
    done = typed(f"apply {record['plan']} --only {NAME}+")
    assert (done.code, done.text.count("left out")) == (0, 2), done.text
    assert [tables(world)[kind] == before[kind] for kind in KINDS] == [False, True, True]
    assert typed("plan --check").code == 0
