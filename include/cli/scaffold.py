"""What `new` writes: a stream that counts the events of each key, and its test, both for changing."""

from keyword import iskeyword
from pathlib import Path

from include.fold.definition import RESERVED_IN_OUTPUTS
from include.lake.errors import wrong_argument
from include.registry import source_names, stream_names, unknown
from include.settings import IDENTIFIER, Field, SettingsError, Source

PYTHON_TYPES = {"bigint": "int", "double": "float", "string": "str"}
SAMPLES = {"bigint": "7", "double": "1.5", "string": '"a"'}

STREAM = '''\
"""{title}: the events of each {key} so far."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import map_groups_with_state
from include.fold.group_state import GroupState
from include.settings import Stream


class Event(NamedTuple):
{event_fields}
    event_time_us: int


class Seen(NamedTuple):
    events: int


class Row(NamedTuple):
    {key}: {key_type}
    events: int


def count(key: {key_type}, events: Iterator[Event], state: GroupState[Seen]) -> Row:
    """The row of a key after these events, which come in order of their time."""
    before = state.get.events if state.exists else 0
    seen = Seen(before + sum(1 for _ in events))
    state.update(seen)
    return project(key, seen)


def project(key: {key_type}, seen: Seen) -> Row:
    """The row of a state alone: the table is rebuilt from a savepoint by it."""
    return Row(key, seen.events)


FOLD = map_groups_with_state(
    count,
    key="{key}",
    event=Event,
    state=Seen,
    output=Row,
    output_mode="update",
    project=project,
)
STREAM = Stream(
    source="{source}",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    fold=FOLD,
    comments={{
        "{key}": "Key",
        "events": "Events of the key so far",
    }},
)
'''

# The one place that knows how a fold is run without Spark.
STREAM_TEST = '''\
"""What {name} computes, without Spark: `./stateful test {name}`. See docs/testing.md."""

from include.fold.testing.check import check_fold
from include.fold.testing.run import run
from include.streams.{name} import FOLD, Event, Row, Seen


def happened(at_us: int) -> Event:
    return Event({values}, at_us)


def test_a_key_has_one_row_with_the_count_so_far():
    assert run(FOLD, [happened(1), happened(2)]).outputs == [Row({key}, 2)]


def test_the_count_goes_on_from_the_state():
    assert run(FOLD, [happened(1)], state={{{key}: Seen(41)}}).states == {{{key}: Seen(42)}}


def test_no_cut_of_the_input_changes_a_count():
    check_fold(FOLD)
'''


def new_stream(project: Path, name: str, source: Source) -> list[Path]:
    """Write a stream of that name and its test; the files. SettingsError for a name that is none."""
    _refuse_name(name)
    if name in (*stream_names(), "sources", "notify"):
        raise SettingsError(
            f"include/streams/{name}.py is there already: give another name",
            code="name_taken",
            subject=name,
        )
    key = _key_of(source)
    events = [f for f in source.fields if f.type in PYTHON_TYPES and _can_be_in_a_record(f)]
    fields = [f"    {field.name}: {_type_of(field)}" for field in events]
    given = {
        "name": name,
        "title": _title(name),
        "source": source.name,
        "key": key.name,
        "key_type": _type_of(key),
        "event_fields": "\n".join(fields),
    }
    values = {"values": ", ".join(SAMPLES[field.type] for field in events)}
    return [
        _write(project / "include" / "streams" / f"{name}.py", STREAM.format(**given)),
        _write(
            _test_file(project, name),
            STREAM_TEST.format(name=name, key=SAMPLES[key.type], **values),
        ),
    ]


def files_of_tests(project: Path, name: str) -> list[Path]:
    """Where the tests of what has that name are: of a stream, of a source, of one of each.

    SettingsError says what there is when nothing has it.
    """
    streams, sources = stream_names(), source_names()
    if name not in (*streams, *sources):
        raise SettingsError(
            unknown("stream or source", name, (*streams, *sources)),
            code="unknown_stream",
            subject=name,
        )
    files = [_test_file(project, name)] if name in streams else []
    return files + ([_test_file(project, f"source_{name}")] if name in sources else [])


def _test_file(project: Path, name: str) -> Path:
    return project / "tests" / "streams" / f"test_{name}.py"


def _refuse_name(name: str) -> None:
    if not IDENTIFIER.fullmatch(name) or iskeyword(name):
        raise wrong_argument(
            name,
            f"stream name {name!r} must be lower case letters, digits and _, such as page_views",
        )


def _key_of(source: Source) -> Field:
    """The first field that events can be grouped by; one that is always there, if any is."""
    found = [field for field in source.fields if field.type in ("string", "bigint")]
    keys = [field for field in found if _can_be_in_a_record(field) and not _is_taken(field)]
    if not keys:
        names = ", ".join(field.name for field in found)
        wrong = names and f", and the table, or Python, takes {names} for something else"
        raise SettingsError(
            f"source {source.name} has no field to group by: a key is a string or a bigint{wrong}",
            subject=source.name,
        )
    return next((field for field in keys if field.required), keys[0])


def _can_be_in_a_record(field: Field) -> bool:
    """Whether Python allows a field of that name in a NamedTuple."""
    return field.name.isidentifier() and not iskeyword(field.name) and field.name[0] != "_"


def _is_taken(field: Field) -> bool:
    """Whether the table has a column of that name beside its key; to Spark it has no case."""
    return field.name.lower() in {*RESERVED_IN_OUTPUTS, "events"}


def _type_of(field: Field) -> str:
    return PYTHON_TYPES[field.type] + ("" if field.required else " | None")


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _write(file: Path, text: str) -> Path:
    if file.exists():
        raise SettingsError(f"{file} is there already", code="name_taken", subject=str(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file
