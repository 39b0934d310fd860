"""A registry that knows more, or less, behind a death: each message is in one table, once."""

from collections.abc import Iterator
from contextlib import suppress
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.landing.kafka_rows import judged_again
from include.landing.landed_avro import schema_of
from tests.deaths import Dying, KilledError
from tests.examples import examples
from tests.ingested import bronze_of, quarantine_of
from tests.landing.test_kafka_avro import FAR, SIGNAL, by_registry, record
from tests.registries import FakeRegistry, running_registry
from tests.topics import served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as running:
        yield running


def run(lake: Lake, registry: FakeRegistry, dies_at: int | None = None) -> None:
    """One process, which may be killed before a write of it."""
    schema_of.cache_clear()
    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        if dies_at is not None:
            Dying(patch, dies_at)
        ingest(lake, by_registry(registry))


def offsets(rows: list[dict[str, int]]) -> list[int]:
    return sorted(row["kafka_offset"] for row in rows)


known = st.sets(st.sampled_from("ab"))
runs = st.lists(st.tuples(known, st.integers(1, 8)), min_size=1, max_size=3)


@examples(100)
@example("aa", [(set(), 3)])  # once each table has what is now known otherwise
@example("ab", [({"a"}, 3), ({"b"}, 6)])
@given(st.text("ab?", min_size=1, max_size=4), runs)
def test_each_message_is_somewhere_once_whatever_is_known_when(
    registry: FakeRegistry, messages: str, runs: list[tuple[set[str], int]]
):
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        lake, topic = Lake(root), served(patch)
        registry.schemas = {}
        ids = {name: registry.add(SIGNAL) for name in "ab"}
        every = dict(registry.schemas)
        for second, name in enumerate(messages):
            value = registry.wire(ids[name], record(second)) if name in ids else b"?"
            topic.produce(0, value)
        for names, dies_at in runs:
            registry.schemas = {ids[name]: every[ids[name]] for name in names}
            run(lake, registry, dies_at)
        registry.schemas = every
        run(lake, registry)
        taken, refused = bronze_of(lake), quarantine_of(lake)
        assert sorted(offsets(taken) + offsets(refused)) == list(range(len(messages)))
        for row in refused:  # and what was not known is taken in now
            again = judged_again(by_registry(registry), row, None, FAR)
            assert (again["kind"] == "accepted") == (messages[row["kafka_offset"]] in ids)
