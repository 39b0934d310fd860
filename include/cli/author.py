"""The commands for authors of streams: new, validate, test, shell."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer

from include.cli.app import (
    AnyLakeOption,
    AnyStreamArgument,
    JsonOption,
    LakeOption,
    command,
    show_json,
)
from include.ingest.bronze_tables import refuse_other_fields
from include.lake.errors import SettingsError, wrong_argument
from include.lake.paths import Lake, open_lake
from include.registry import all_sources, source_named, source_names, stream_named, stream_names
from include.settings import IDENTIFIER, PROJECT, Field, Source
from include.spark.conf import refuse_unfit, spark_package
from include.spark.submit import say, shell_command, shell_environment
from include.streams import FOLDER, TESTS
from include.text_table import text_table

PANEL = "Write streams"


@command("new", "new page_views --source user_events", PANEL)
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower case, such as page_views.")],
    source: Annotated[
        str,
        typer.Option(autocompletion=source_names, help="What it reads; the first source if none."),
    ] = "",
) -> int:
    """Write a new stream, which counts the events of each key, and its test."""
    found = source_named(source) if source else all_sources()[0]
    for file in new_stream(PROJECT, name, found):
        say(f"wrote {file}")
    say(f"change them to what you need; `./stateful test {name}` checks them")
    return 0


@command("validate", "validate user_counts", PANEL)
def validate(
    root: AnyLakeOption, name: AnyStreamArgument = None, is_json: JsonOption = False
) -> int:
    """Check the file of a stream, or of each; exit code 1 when anything is wrong.

    Also checks that the lake's bronze can take the fields that the source declares, and that the
    installed Spark and Delta fit each other.
    """
    if name is not None and name not in stream_names():
        stream_named(name)  # raises, and lists the names
    names = stream_names() if name is None else (name,)
    lake = open_lake(root) if "://" in root or Path(root).is_dir() else None
    wrong = {name: _why_wrong(partial(_check_stream, lake, name)) for name in names}
    if is_json:
        show_json([{"stream": name, "error": error} for name, error in wrong.items()])
    else:
        rows = [[name, error or "right"] for name, error in wrong.items()]
        say("\n".join(text_table(("stream", ""), rows)[1:]))
    if unfit := _why_wrong(lambda: refuse_unfit(spark_package())):
        sys.stderr.write(f"error: {unfit}\n")
    return int(any(wrong.values()) or unfit is not None)


def _check_stream(lake: Lake | None, name: str) -> None:
    source = source_named(stream_named(name).source)
    if lake is not None:
        refuse_other_fields(lake, source)


def _why_wrong(check: Callable[[], None]) -> str | None:
    try:
        check()
    except SettingsError as error:
        return str(error)
    return None


@command("test", "test user_counts", PANEL)
def test(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            autocompletion=lambda: [*stream_names(), *source_names()],
            help="A stream or a source.",
        ),
    ],
) -> int:
    """Run the test of a stream or a source, without a JVM: in tests/streams, or `tests` of STREAMS."""
    if name not in source_names():
        stream_named(name)  # raises, and lists the names
    files = [_test_file(PROJECT, name), _test_file(PROJECT, f"source_{name}")]
    there = [str(file) for file in files if file.is_file()]
    if not there:
        raise SettingsError(
            f"{files[0]} is missing: docs/streams.md has an example",
            code="nothing_there",
            subject=name,
        )
    command = [sys.executable, "-m", "pytest", "-q", *there]
    return subprocess.run(command, cwd=PROJECT, check=False).returncode


@command("shell", "shell --lake /data/lake", PANEL)
def shell(lake: LakeOption) -> int:
    """Start a pyspark shell with the lake's tables as views, and read_state('NAME')."""
    # It replaces this process, so that Ctrl-C reaches the shell.
    command = shell_command(lake.root)
    os.execve(command[0], command, os.environ | shell_environment(lake.root))  # noqa: S606 (our own words)


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

STREAM_TEST = '''\
"""Tests of {name} without Spark: `./stateful test {name}`. See docs/streams.md."""

from include.fold.testing.cases import run
from include.fold.testing.check import check_fold
from include.streams.{name} import FOLD, Event, Row, Seen


def happened(at_us: int) -> Event:
    return Event({values}, at_us)


def test_a_key_has_one_row_with_the_count_so_far():
    assert run(FOLD, [happened(1), happened(2)]).outputs == [Row({key_value}, 2)]


def test_the_count_goes_on_from_the_state():
    assert run(FOLD, [happened(1)], state={{{key_value}: Seen(41)}}).states == {{{key_value}: Seen(42)}}


def test_no_cut_of_the_input_changes_a_count():
    check_fold(FOLD)
'''


def new_stream(project: Path, name: str, source: Source) -> list[Path]:
    """Write a stream and its test, and return the files; raises SettingsError for a bad or taken name."""
    if not IDENTIFIER.fullmatch(name) or iskeyword(name):
        raise wrong_argument(
            name,
            f"stream name {name!r} must be lower case letters, digits and _, such as page_views",
        )
    files = [project / FOLDER / f"{name}.py", _test_file(project, name)]
    for file in files:
        if file.exists():
            raise SettingsError(f"{file} exists already", code="name_taken", subject=name)
    fields = [field for field in source.fields if _can_be_in_a_record(field)]
    key = _key_of(source, fields)
    given = {
        "name": name,
        "title": name.replace("_", " ").capitalize(),
        "source": source.name,
        "key": key.name,
        "key_type": _type_of(key),
        "key_value": SAMPLES[key.type],
        "event_fields": "\n".join(f"    {field.name}: {_type_of(field)}" for field in fields),
        "values": ", ".join(SAMPLES[field.type] for field in fields),
    }
    for file, text in zip(files, (STREAM, STREAM_TEST), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(**given))
    return files


def _test_file(project: Path, name: str) -> Path:
    return project / TESTS / f"test_{name}.py"


def _key_of(source: Source, fields: Sequence[Field]) -> Field:
    """The first field that events can be grouped by, a required one if there is any."""
    keys = [field for field in fields if field.type != "double"]
    if not keys:
        raise SettingsError(
            f"source {source.name} has no field to group by, of type string or bigint",
            subject=source.name,
        )
    return next((field for field in keys if field.required), keys[0])


def _can_be_in_a_record(field: Field) -> bool:
    """True if the scaffold knows its type, and Python allows its name in a NamedTuple."""
    is_name = field.name.isidentifier() and not iskeyword(field.name) and field.name[0] != "_"
    return field.type in PYTHON_TYPES and is_name


def _type_of(field: Field) -> str:
    return PYTHON_TYPES[field.type] + ("" if field.required else " | None")
