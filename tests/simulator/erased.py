"""Steps in a world with a key that is erased, and the check of all that is left."""

import json
import random
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.amend.erase_rows import erased_key
from include.fold.admission import EPOCH
from include.ingest.ingest import ingest, prepare
from include.lake.ops import append_ops
from include.maintain.check_checkpoint import check_checkpoint
from include.stream.rebuild_plan import RebuildOptions
from include.stream.stream_status import stream_status
from spark_jobs import erase_key
from spark_jobs.erase_key import erase
from spark_jobs.rebuild_stream import rebuild
from tests.amend.scan import files_with
from tests.simulator import oracle
from tests.simulator.oracle import FAILS, Commit, Landed
from tests.simulator.steps import all_rows, land, run, some_rows, table_of
from tests.simulator.stream_files import KINDS
from tests.simulator.world import MINUTE_US, World

SECRET = "who-is-to-be-forgotten-0123456789"
STREAM = "sim_counts"


def lived(world: World, seed: int = 3) -> None:
    """Three commits, in each of which the key has rows, the newest of all among them; a file with more of it, and
    an older generation."""
    rng, fails = random.Random(seed), ("counts", "e")
    world.configure("counts", on_error="dead_letter")
    world.deploy(*fails)
    land_file(world)
    append_ops(world.lake, "findings", [{"subject": "sent", "finding": "x", "detail": SECRET}])
    for number in range(3):
        if number == 2:
            rebuild(world.engine, world.lake, world.streams["counts"], RebuildOptions())
        own = [(SECRET, minutes * MINUTE_US, 2) for minutes in (0, 20, 70)]
        land(world, some_rows(rng) + own)
        for kind in KINDS:
            run(world, kind)


def land_file(world: World) -> None:
    """A row for which a function fails, one of another key, and one that is refused."""
    rows = [Landed(SECRET, world.now_us, FAILS), Landed("b", world.now_us, 1)]
    lines = [
        json.dumps({"key": row.key, "value": row.value, "sent_at": world.now().isoformat()})
        for row in rows
    ]
    folder = Path(world.lake.landing("sent"))
    folder.mkdir(parents=True)
    (folder / "0.jsonl").write_text("\n".join([*lines, f"{{{SECRET}"]))
    ingest(world.lake, world.source, interval_end=EPOCH)
    world.commits.append(Commit(world.now_us, tuple(rows)))


def forget(world: World, key: str = SECRET) -> None:
    erase(world.engine, world.lake, erased_key(STREAM, key))


def left(world: World, *others: str):
    return [row for row in all_rows(world) if row.key not in (SECRET, *others)]


def check_erased(world: World, *others: str) -> None:
    """No byte of it, and all tables are what the oracle says of the rows that are left.

    `others`: keys that were erased, too.
    """
    assert files_with(Path(world.lake.root), [SECRET.encode()]) == set()
    bronze = DeltaTable(world.lake.bronze("sent"))
    assert bronze.metadata().configuration["delta.appendOnly"] == "true"
    failed = oracle.folded("counts", "e", left(world, *others), world.clock_us).dead_letters
    assert {*world.dead_letters("counts")} <= {*failed}
    for kind in KINDS:
        assert world.table(kind) == table_of(world, kind, left(world, *others)), kind
        stream = world.streams[kind]
        judged = stream_status(world.lake, stream)
        assert (judged.opened.mismatch, judged.table_status.wrong) == (None, ()), kind
        found = [f.finding for f in check_checkpoint(world.lake, stream).findings]
        assert not {"table_changed", "table_not_right"} & set(found), found


def take(world: World, rows: list[tuple[str, int, int]]) -> None:
    """A batch, with all that ingestion looks at before and behind it."""
    prepare(world.lake, world.source)
    land(world, rows)


def lived_with_late_rows(world: World) -> None:
    """Give each stream a savepoint before which as many rows came late as the key has."""
    take(world, [("a", 200 * MINUTE_US, 1), (SECRET, 190 * MINUTE_US, 2), ("a", 0, 1)])
    for kind in KINDS:
        run(world, kind)
    take(world, [("b", 230 * MINUTE_US, 3), ("a", 0, 1)])
    for kind in KINDS:
        run(world, kind)


def cut_off_before(world: World, step: str, patched: pytest.MonkeyPatch) -> None:
    """An erasure that gets no further than to a step of its job."""

    def cut_off(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with patched.context() as patch:
        patch.setattr(erase_key, step, cut_off)
        with pytest.raises(KeyboardInterrupt):
            forget(world)
