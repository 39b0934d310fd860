"""Streams that read the tables of other streams: the graph, and what is refused before anything runs."""

from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pytest

from include import registry
from include.connectors import Merged, StreamTable
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


def merged(name: str, *inputs: str, **more: object) -> Source:
    connector = Merged(**dict.fromkeys(inputs, timedelta(seconds=1)))
    return Source(name=name, comment="Both", connector=connector, **more)


OTHER = replace(
    LANDED,
    name="other",
    fields=(*LANDED.fields, Field(name="n", type="bigint", comment="How many")),
)


def test_a_merged_source_has_the_fields_of_its_inputs_and_is_behind_them(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    twice = merged("twice", "both", "landed")
    for source in (OTHER, merged("both", "other", "from_a"), twice):
        declare_source(monkeypatch, source)
    folder.declare(stream("m", "both"), stream("n", "twice"), stream("d", "from_m"))
    declare_source(monkeypatch, of("m"))
    found = registry.source_named("both")
    assert [(f.name, f.required) for f in found.fields] == [
        ("input", True),
        ("key", True),
        ("n", False),  # of the table it may be null
    ]
    assert (found.time_field, found.watermark_per) == ("event_time", "input")
    # One that is merged again gives the column another name.
    with refused("wrong_setting", subject="input"):
        registry.source_named("twice")
    which = Field(name="which", path="input", type="string", comment="Of it")
    declare_source(
        monkeypatch, replace(merged("both", "other", "from_a"), fields=(which, LANDED.fields[0]))
    )
    found = registry.source_named("twice")
    assert [f.name for f in found.fields] == ["input", "which", "key"]
    assert registry.parents_of("n") == registry.parents_of("m") == ("a",)
    assert registry.sources_behind("landed") == [
        "from_a",
        "both",
        "from_m",
        "twice",
        "from_d",
    ]
    assert registry.descendants_of("a") == ("m", "n", "d")
    assert [s.name for s in registry.inputs_first(found)] == [
        "other",
        "from_a",
        "both",
        "landed",
        "twice",
    ]


TEXT = replace(OTHER, name="text", fields=(Field(name="n", type="string", comment="Text"),))
TAGGED = replace(OTHER, name="tagged", fields=(Field(name="input", type="string", comment="Ours"),))
WRONG_MERGES = {
    "two types": (merged("both", "other", "text"), "n"),
    "its own column": (merged("both", "other", "tagged"), "input"),
    "unknown input": (merged("both", "other", "nobody"), "nobody"),
    "itself": (merged("both", "other", "both"), "both"),
    "no such field": (
        merged("both", "other", "landed", fields=(TAGGED.fields[0], FIELDS["missing column"])),
        "other",
    ),
}


@pytest.mark.parametrize("case", WRONG_MERGES)
def test_what_a_merged_source_cannot_be_is_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, case: str
):
    source, subject = WRONG_MERGES[case]
    for each in (OTHER, TEXT, TAGGED, source):
        declare_source(monkeypatch, each)
    folder.declare(stream("z", "landed"), stream("m", "both"))
    with refused("unknown_source" if subject == "nobody" else "wrong_setting", subject=subject):
        registry.source_named("both")
    assert [each.name for each in registry.declared().streams] == ["a", "z"]


def test_a_cycle_through_a_merged_source_is_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
):
    declare_source(monkeypatch, merged("both", "landed", "from_b"))
    folder.declare(stream("b", "both"))
    for named in (lambda: registry.stream_named("b"), lambda: registry.source_named("both")):
        with refused("wrong_setting"):
            named()
    assert [each.name for each in registry.declared().streams] == ["a"]


@pytest.mark.parametrize(
    "wrong", [{"orders": timedelta(0)}, {"a": timedelta(seconds=-1), "b": timedelta(0)}]
)
def test_what_delays_of_a_merged_source_cannot_be_is_refused(wrong: dict[str, timedelta]):
    with pytest.raises(SettingsError):
        Merged(**wrong)


@pytest.mark.parametrize(
    "setting", [{"heartbeat_delay": timedelta(0)}, {"watermark_per": "key"}, {"time_field": "at"}]
)
def test_what_moves_a_watermark_is_refused_of_a_merged_source(setting: dict[str, object]):
    with refused("wrong_setting", subject=next(iter(setting))):
        replace(merged("both", "a", "b", fields=LANDED.fields), **setting)
