"""A Delta table is put back as an older copy, and goes on: its next versions have the numbers of others."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from include.lake.paths import Lake
from include.landing.ingest import RunCounts, ingest
from include.settings import Source
from tests.examples import examples
from tests.refused import refused
from tests.theirs import ACCEPT, Theirs, accept_lost, lost, values_of

pytestmark = pytest.mark.slow


def put_back(theirs: Theirs, version: int) -> None:
    for path in Path(theirs.uri, "_delta_log").glob("*.json"):
        if int(path.stem) > version:
            path.unlink()


steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "merge_new", "ingest", "optimize", "put_back"]),
        st.integers(0, 9),
    ),
    min_size=4,
    max_size=14,
)


@examples(20)
@given(steps)
def test_each_row_of_each_branch_that_a_run_has_seen_is_taken_once(steps: list[tuple[str, int]]):
    with TemporaryDirectory() as root:
        theirs, lake = Theirs(Path(root)), Lake(f"{root}/lake")
        source = theirs.source()
        theirs.append(1)
        versions, seen = [{0}], set[int]()
        for name, number in [("ingest", 0), *steps, ("ingest", 0)]:
            before = theirs.given
            if name == "put_back":
                versions = versions[: number % len(versions) + 1]
                put_back(theirs, len(versions) - 1)
            elif name == "ingest":
                skip_and_ingest(lake, replace(source, commit_bytes=1 if number % 2 else 10**9))
                seen |= set().union(*versions)
            else:
                given_ = {"append": (1,), "merge_new": (1,), "optimize": ()}[name]
                getattr(theirs, name)(*given_)
                versions += [{*range(before, theirs.given)}] * (
                    DeltaTable(theirs.uri).version() + 1 - len(versions)
                )
        assert values_of(lake) == sorted(seen)


def skip_and_ingest(lake: Lake, source: Source) -> None:
    if lost(lake, source):
        with refused("lost_input", subject="signals", command=ACCEPT):
            ingest(lake, source)
        accept_lost(lake, source)
    ingest(lake, source)
    assert ingest(lake, source) == RunCounts()
