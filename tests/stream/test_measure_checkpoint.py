"""What is measured, against a plain-Python model of how Spark writes and loads a checkpoint."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from include.lake.paths import Lake
from include.stream.measure_checkpoint import StoreSize, measure_checkpoint
from tests.stream.spark_checkpoint import (
    CannotLoadError,
    SparkCheckpoint,
    SparkStore,
    checksum_of,
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
    """What happens to a checkpoint in its life."""
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


def with_checksums(paths) -> set[Path]:
    return {twin for path in paths for twin in (path, checksum_of(path)) if twin.exists()}


def bytes_of(paths) -> int:
    return sum(path.stat().st_size for path in paths)


def version_files(store: SparkStore) -> dict[Path, int]:
    found = [*store.folder.glob("*.zip"), *store.folder.glob("*.changelog")]
    return {path: int(path.stem) for path in found}


def repair_base(store: SparkStore, start: int) -> int:
    """Where a start would begin without its newest snapshot; what is retained, if it could not."""
    usable = [version for version in store.snapshots() if version <= start]
    if not usable:
        return 0
    try:
        return store.load(start, hidden=frozenset(usable[-1:])).base
    except CannotLoadError:
        return usable[-2] if len(usable) > 1 else usable[-1]


def expected(store: SparkStore, start: int) -> dict[str, object]:
    """The figures of a store, found by loading all that can be loaded."""
    loaded = store.load(start)
    base = repair_base(store, start)
    needed_from = {
        v: {store.folder / "SSTs" / n for n in store.ssts_of(v)} for v in store.snapshots()
    }
    versions = version_files(store)
    named = set().union(*needed_from.values())
    kept = set().union(*(ssts for v, ssts in needed_from.items() if v >= base))
    garbage = with_checksums([p for p, v in versions.items() if v < base] + list(named - kept))
    everything = set(files_below(store.folder))
    orphans = everything - with_checksums([*versions, *named])
    return {
        "bytes": bytes_of(everything),
        "files": len(everything),
        "versions": sum(can_load(store, version) for version in range(1, start + 1)),
        "newest_version": start or None,
        "replay_versions": len(loaded.changelogs),
        "replay_bytes": bytes_of(store.changelog(v) for v in loaded.changelogs),
        "garbage_bytes": bytes_of(garbage),
        "orphan_files": len(orphans),
    }


def can_load(store: SparkStore, version: int) -> bool:
    try:
        store.load(version)
    except CannotLoadError:
        return False
    return True


def figures(size: StoreSize) -> dict[str, object]:
    place = ("operator", "partition", "store")
    return {name: value for name, value in vars(size).items() if name not in place}


@given(steps=STEPS, store=st.sampled_from(["default", "left-keyToNumValues"]))
def test_every_figure_is_what_loading_shows(steps, store):
    with tempfile.TemporaryDirectory() as folder:
        made = checkpoint_in(Path(folder), store=store)
        made.batch()
        follow(made, steps)
        size = measured(Path(folder))
        for own, found in zip(made.stores, size.stores, strict=True):
            wanted = expected(own, made.start)
            assert figures(found) == pytest.approx(wanted, abs=1e-6)
        assert size.unreadable is None
        assert (size.position.planned, size.position.committed) == (made.planned, made.committed)
        assert size.bytes == bytes_of(files_below(made.root))
        assert size.files == len(files_below(made.root))
        assert "unknown" not in {part.part for part in size.parts}


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
        size = measured(Path(folder))
        assert (size.unreadable is None) == can_load(store, made.start)
        assert figures(size.stores[0])["versions"] == sum(
            can_load(store, version) for version in range(1, made.start + 1)
        )


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
    parts = {part.part: part for part in measured(Path(lake.root)).parts}
    folders = {
        "offsets": ["offsets"],
        "commits": ["commits"],
        "sources": ["sources"],
        "state_metadata": ["state/0/_metadata", "state/0/_stateSchema", "state/0/0/_metadata"],
    }
    for part, inside in folders.items():
        files = [path for folder in inside for path in files_below(made.root / folder)]
        assert (parts[part].files, parts[part].bytes) == (len(files), bytes_of(files)), part
    assert parts["metadata"].files == 2
    assert set(parts) == {"metadata", "state", *folders}


def test_any_file_system_is_measured_alike(lake):
    made = checkpoint_in(Path(lake.root))
    for _ in range(3):
        made.batch(snapshot=True)
    here = measured(Path(lake.root))
    by_uri = measure_checkpoint(Lake(f"file://{lake.root}"), "counts", 1)
    # As in an object store: neither local nor with paths that begin at a root.
    elsewhere = Lake("store://bucket/lake")
    parent = fs.SubTreeFileSystem(str(Path(lake.root).parent), fs.LocalFileSystem())
    vars(elsewhere)["_opened"] = (parent, "lake")
    stored = measure_checkpoint(elsewhere, "counts", 1)
    assert by_uri.stores == stored.stores == here.stores
    assert by_uri.parts == stored.parts == here.parts
