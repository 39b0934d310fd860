"""A stream's output mode, output record or function of keys changes: the rebuild makes its table anew, in one commit."""

import pytest
from deltalake import DeltaTable

from include.fold.failures import StateFunctionError
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions, plan_rebuild
from include.stream.stream_status import stream_status
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.tables.product import Product
from tests.deaths import KilledError
from tests.refused import refused, refused_until
from tests.simulator.kinds import TEXT
from tests.simulator.shapes import Shape
from tests.simulator.steps import all_rows, land, lived, run, table_of
from tests.simulator.stream_files import stream_file
from tests.simulator.world import MINUTE_US, World, open_world

OTHER_MODE = [("counts_per_key", "counts"), ("counts", "counts_per_key")]


def id_of(world: World, kind: str) -> object:
    return DeltaTable(world.lake.table(world.streams[kind].name)).metadata().id


@pytest.mark.parametrize(("kind", "other"), OTHER_MODE)
def test_the_table_gets_the_rows_of_another_output_mode_by_the_rebuild(world, kind, other):
    lived(world, kind)
    table_id = id_of(world, kind)
    world.put_file(kind, stream_file(other, "a"))
    with refused_until(f"rebuild sim_{kind} --full-refresh --apply"):
        run(world, kind)
    rebuild(world.engine, world.lake, world.streams[kind], RebuildOptions(full_refresh=True))
    assert stream_status(world.lake, world.streams[kind]).is_right
    for _ in range(2):
        land(world, [("a", 2 * MINUTE_US, 1), ("c", 3 * MINUTE_US, 2)])
        run(world, kind)
    world.deployed[other] = "a"
    assert world.table(kind) == table_of(world, other, all_rows(world))
    assert id_of(world, kind) == table_id


CHANGED = {
    "less": (("    amount: int\n", ""), ("what, amount(known),", "what,")),
    "retyped": (
        ("    amount: int", "    amount: float"),
        ("amount(known),", "float(amount(known)),"),
    ),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("kind", ["counts", "counts_per_key"])
def test_a_column_less_or_of_another_type_comes_with_the_rebuild(world, kind, change):
    lived(world, kind)
    table_id, stream, text = id_of(world, kind), world.streams[kind], stream_file(kind, "a")
    for old, new in change:
        assert old in text
        text = text.replace(old, new)
    world.put_file(kind, text)
    with refused_until(f"rebuild {stream.name}"):
        run(world, kind)
    assert plan_rebuild(open_stream(world.lake, stream), RebuildOptions()).from_us is None
    rebuild(world.engine, world.lake, stream, RebuildOptions())
    assert stream_status(world.lake, stream).is_right
    land(world, [("a", 2 * MINUTE_US, 1)])
    run(world, kind)
    rows = DeltaTable(world.lake.table(stream.name)).to_pyarrow_table().to_pylist()
    assert len(rows) == sum(table_of(world, kind, all_rows(world)).values())
    assert id_of(world, kind) == table_id


def test_code_is_marked_as_changed_when_it_writes_and_not_when_it_fails(world, monkeypatch):
    lived(world, "counts")
    world.put_file("counts", stream_file("counts", "a").replace("n = known.n if", "n = 1 // 0 if"))
    land(world, [("a", 0, 1), ("b", 0, 1)])
    land(world, [("a", 0, 1)])
    with pytest.raises(StateFunctionError):
        run(world, "counts")
    assert (changed_at(world), code_changes(world)) == (None, 0)

    write_once = Product.write_once

    def written_then_killed(self, *args):
        write_once(self, *args)
        raise KilledError

    world.deploy("counts", "b")
    with monkeypatch.context() as patched:
        patched.setattr(Product, "write_once", written_then_killed)
        with pytest.raises(KilledError):
            run(world, "counts")
    marked = changed_at(world)
    assert marked is not None
    run(world, "counts")
    assert (changed_at(world), code_changes(world)) == (marked, 1)


def changed_at(world: World) -> object:
    return read_generations(world.lake, "sim_counts").pinned()["code_changed_at_us"]


def code_changes(world: World) -> int:
    return int(read_ops(world.lake, "findings", {"finding": "code_changed"}).num_rows)


def test_states_are_not_mapped_and_a_rebuild_makes_those_of_the_new_keys():
    shape = Shape((TEXT,), key=(0,), derived=True)
    with open_world(shape=shape) as world:
        for _ in range(4):
            land(world, [("A", 0, 1), ("a", 0, 1)], 60)
        run(world, "counts")
        other_keys = stream_file("counts", "d", shape).replace(".lower()", ".upper()")
        world.put_file("counts", other_keys)
        stream, way = (
            world.streams["counts"],
            "./stateful rebuild sim_counts --full-refresh --apply",
        )
        with refused("not_migratable", subject="sim_counts", command=way):
            rebuild(world.engine, world.lake, stream, RebuildOptions(migrate_state=True))
        rebuild(world.engine, world.lake, stream, RebuildOptions(full_refresh=True))
        run(world, "counts")
        status = stream_status(world.lake, stream)
        assert (status.is_right, status.live_is_right) == (True, True)
