"""Streams that read the tables of other streams: the graph, and what is refused before anything runs."""

from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pytest

from include import registry
from include.connectors import StreamTable
from include.fold.definition import flat_map_groups_with_state
from include.lake.errors import SettingsError
from include.settings import Field, Source, Stream
from include.streams import sources
from tests.declared import register, with_fold
from tests.refused import refused


class Event(NamedTuple):
    key: str
    event_time_us: int


class Known(NamedTuple):
    n: int


class Row(NamedTuple):
    key: str
    n: int | None


def count(key, events, state):
    yield Row(key, 1)


KINDS = {"key": "key", "event": Event, "state": Known, "output": Row}
FOLD = flat_map_groups_with_state(count, output_mode="append", **KINDS)
UPDATED = flat_map_groups_with_state(
    count, output_mode="update", project=lambda key, known: Row(key, known.n), **KINDS
)
BY_PROCESSING_TIME = flat_map_groups_with_state(
    count, output_mode="append", timeout="ProcessingTimeTimeout", **KINDS
)
LANDED = Source(
    name="landed",
    time_field="at",
    comment="What lands",
    fields=(Field(name="key", type="string", comment="Whose"),),
)


def of(parent: str, **more: object) -> Source:
    """The source `from_<parent>`."""
    return Source(name=f"from_{parent}", comment="Emitted", connector=StreamTable(parent), **more)


def stream(name: str, source: str, fold: object = FOLD, delay: int = 0) -> Stream:
    made = Stream(
        name=name,
        source=source,
        schedule="@hourly",
        watermark_delay=timedelta(seconds=delay),
        fold=fold,
        comments={},
    )
    return with_fold(made, fold)


class Folder:
    """The files of a project."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.declare(stream("a", "landed", delay=60))

    def declare(self, *streams: Stream) -> None:
        self.streams |= {each.name: each for each in streams}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Folder:
    made = Folder()
    parents = [of(name) for name in "abcde"]
    monkeypatch.setattr(sources, "SOURCES", (LANDED, *parents))
    register(monkeypatch, lambda: made.streams)
    return made


def declare_source(monkeypatch: pytest.MonkeyPatch, source: Source) -> None:
    others = [each for each in sources.SOURCES if each.name != source.name]
    monkeypatch.setattr(sources, "SOURCES", (*others, source))


def test_the_graph_of_a_chain_and_its_order(folder: Folder):
    chain = (stream("b", "from_a"), stream("c", "from_b"), stream("ab", "from_a"))
    folder.declare(*chain)
    assert registry.parents_of("a") == ()
    assert registry.ancestors_of("c") == ("b", "a")
    assert registry.descendants_of("a") == ("ab", "b", "c")
    assert registry.descendants_of("c") == ()
    assert [each.name for each in registry.all_streams()] == ["a", "ab", "b", "c"]


def test_a_source_has_all_columns_of_the_table_or_those_that_it_names(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    found = registry.source_named("from_a")
    assert [(f.name, f.type, f.required) for f in found.fields] == [
        ("key", "string", True),
        ("n", "bigint", False),
    ]
    assert found.time_field == "emitted_at"
    who = Field(name="who", path="key", type="string", comment="Whose")
    declare_source(monkeypatch, of("a", fields=(who,)))
    assert registry.source_named("from_a").fields == (who,)


REFUSED = {
    "cycle": ([stream("a", "from_b"), stream("b", "from_a")], "b", "a"),
    "longer cycle": (
        [stream("a", "from_c"), stream("b", "from_a"), stream("c", "from_b")],
        "b",
        "b",
    ),
    "before a cycle": (
        [stream("a", "from_b"), stream("b", "from_a"), stream("c", "from_b")],
        "c",
        "b",
    ),
    "own table": ([stream("b", "from_b")], "b", "b"),
    "missing parent": ([stream("d", "from_c")], "d", "c"),
    "update parent": ([stream("a", "landed", UPDATED), stream("b", "from_a")], "b", "a"),
    "processing time": ([stream("b", "from_a", BY_PROCESSING_TIME)], "b", "timeout"),
    "delay": ([stream("b", "from_a", delay=1)], "b", "watermark_delay"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_stream_of_a_stream_cannot_be_is_refused_and_the_others_stay(
    folder: Folder, case: str
):
    declared, name, subject = REFUSED[case]
    folder.declare(*declared, stream("z", "landed"))
    code = "unknown_stream" if case == "missing parent" else "wrong_setting"
    with refused(code) as error:
        registry.stream_named(name)
    assert error.value.subject in (subject, *registry.ancestors_of(name))
    known = registry.declared()
    assert "z" in [each.name for each in known.streams]
    assert name not in [each.name for each in known.streams]
    assert known.wrong


FIELDS = {
    "missing column": Field(name="other", type="string", comment="No column"),
    "another type": Field(name="n", type="string", comment="It is a number", required=False),
    "required": Field(name="n", type="bigint", comment="It may be null"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_field_that_is_no_column_of_the_table_is_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, case: str
):
    declare_source(monkeypatch, of("a", fields=(FIELDS[case],)))
    with refused("wrong_setting", subject=FIELDS[case].name):
        registry.source_named("from_a")
    assert "from_a" not in [each.name for each in registry.all_sources()]
    assert any("from_a" in wrong for wrong in registry.declared().wrong)


@pytest.mark.parametrize(
    "setting", [{"heartbeat_delay": timedelta(0)}, {"watermark_per": "key"}, {"time_field": "at"}]
)
def test_what_moves_a_watermark_is_refused_of_a_source_of_a_table(setting: dict[str, object]):
    key = Field(name="key", type="string", comment="Whose")
    with pytest.raises(SettingsError) as error:
        replace(of("a", fields=(key,)), **setting)
    assert (error.value.code, error.value.subject) == ("wrong_setting", *setting)
