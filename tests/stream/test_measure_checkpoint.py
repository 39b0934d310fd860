"""The figures of a checkpoint, against a plain-Python model of how Spark writes and loads a checkpoint."""

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from include.lake.paths import Lake
from include.stream.checkpoint import measure_checkpoint
from tests.stream.spark_checkpoint import (
    CannotLoadError,
    SparkCheckpoint,
    SparkStore,
    remove,
    write,
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.booleans(), st.booleans()),
        st.tuples(st.just("killed"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("uploading"), st.integers(0, 1)),
        st.tuples(st.just("half written")),
        # At least two: by a killed batch alone, one would be a version that is not committed.
        st.tuples(st.just("maintenance"), st.integers(2, 4)),
        st.tuples(st.just("purge"), st.integers(2, 4)),
    ),
    min_size=1,
    max_size=14,
)


def measured(root: Path):
    return measure_checkpoint(Lake(str(root)), "counts", 1)


def checkpoint_in(root: Path, partitions: int = 2, **kwargs) -> SparkCheckpoint:
    return SparkCheckpoint(root / "checkpoints/counts/1", partitions, **kwargs)


def follow(made: SparkCheckpoint, steps) -> None:
    """Do to a checkpoint what happens in its life."""
    for number, (what, *details) in enumerate(steps):
        if what == "batch":
            made.batch(*details) if any(details) else made.batch()
        elif what == "killed":
            made.plan()
            made.write_states(count=details[0], snapshot=details[1])
        elif what == "uploading":
            made.stores[details[0]].upload_ssts(2)
        elif what == "half written":
            write(made.stores[0].folder / f".{number}.changelog.8a1f.tmp", b"half")
            write(made.root / "offsets" / f".{number}.8a1f.tmp", b"half")
        elif what == "maintenance":
            for store in made.stores:
                store.delete_old_versions(*details)
        else:
            made.purge_logs(*details)


def files_below(folder: Path) -> list[Path]:
    return [Path(at) / name for at, _, names in os.walk(folder) for name in names]


def bytes_of(paths) -> int:
    return sum(path.stat().st_size for path in paths)


def can_load(store: SparkStore, version: int) -> bool:
    try:
        store.load(version)
    except CannotLoadError:
        return False
    return True


@given(steps=STEPS)
def test_every_figure_is_what_loading_shows(steps):
    with tempfile.TemporaryDirectory() as folder:
        made = checkpoint_in(Path(folder))
        made.batch()
        follow(made, steps)
        size = measured(Path(folder))
        assert size.measured.replay_versions == max(
            len(store.load(made.start)) for store in made.stores
        )
        for number, store in enumerate(made.stores):
            wanted = bytes_of(files_below(store.folder))
            assert size.measured.bytes_of[f"state/0/{number}"] == wanted
        assert size.verdict == "ok"
        assert (size.begun, size.committed) == (made.planned, made.committed)
        files = files_below(made.root)
        assert (size.measured.bytes, size.measured.files) == (bytes_of(files), len(files))


@given(
    steps=STEPS,
    choice=st.integers(0, 10**6),
    how=st.sampled_from(["deleted", "cut off", "emptied"]),
)
def test_a_lost_file_is_missed_exactly_when_a_start_fails_on_it(steps, choice, how):
    with tempfile.TemporaryDirectory() as folder:
        made = checkpoint_in(Path(folder), partitions=1)
        made.batch(snapshot=True)
        follow(made, [step for step in steps if step[0] != "uploading" or step[1] == 0])
        (store,) = made.stores
        files = sorted(path for path in files_below(store.folder) if not path.name.startswith("."))
        lost = files[choice % len(files)]
        damage(lost, how)
        is_loadable = can_load(store, made.start)
        assert (measured(Path(folder)).verdict == "ok") == is_loadable


def damage(path: Path, how: str) -> None:
    if how == "deleted" or path.suffix == ".changelog":
        remove(path)  # that a change log is cut off shows only when Spark reads it
    else:
        path.write_bytes(path.read_bytes()[: -1 if how == "cut off" else 0])


def test_each_part_has_its_files(lake):
    made = checkpoint_in(Path(lake.root))
    for _ in range(3):
        made.batch(snapshot=True)
    write(made.root / "sources/0/0", b"v1")
    write(made.root / "state/0/_stateSchema/default/0_7a3c", b"schema")
    write(made.root / "state/0/0/_metadata/schema", b"schema")
    parts = dict(measured(Path(lake.root)).measured.bytes_of)
    for part in ("offsets", "commits", "sources", "state/0/0", "state/0/1"):
        assert parts.pop(part) == bytes_of(files_below(made.root / part)), part
    files = [path for path in files_below(made.root / "state/0") if "/state/0/_" in str(path)]
    assert parts.pop("state") == bytes_of(files)
    assert parts == {"metadata": bytes_of(made.root.glob("*metadata*"))}
