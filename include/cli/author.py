"""For who writes streams: a scaffold, what is wrong with a file, its test, a shell over the lake."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from include.cli import scaffold
from include.cli.app import (
    AnyLakeOption,
    AnyStreamArgument,
    JsonOption,
    LakeOption,
    MistakeError,
    command,
    show_json,
)
from include.lake.paths import Lake, open_lake
from include.landing.bronze_tables import refuse_other_fields
from include.registry import (
    all_sources,
    source_named,
    source_names,
    stream_named,
    stream_names,
)
from include.settings import PROJECT, SettingsError
from include.spark.local_jobs import say
from include.spark.submit import installed_versions, shell_command, shell_environment
from include.spark.versions import refuse_unfit
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
    """Write a new stream that counts the events of each key, and its test."""
    found = source_named(source) if source else all_sources()[0]
    for file in scaffold.new_stream(PROJECT, name, found):
        say(f"wrote {file.relative_to(PROJECT)}")
    say(f"change them to what you need; `./stateful test {name}` says whether they are right")
    return 0


@command("validate", "validate user_counts", PANEL)
def validate(
    root: AnyLakeOption,
    name: AnyStreamArgument = None,
    is_json: JsonOption = False,
) -> int:
    """Say what is wrong with the file of a stream, or of each; 1 when anything is.

    Also when the lake's bronze cannot become what the stream's source declares, or no job would start
    with the Spark and Delta that are installed.
    """
    if name is not None and name not in stream_names():
        stream_named(name)  # says which there are
    names = stream_names() if name is None else (name,)
    lake = open_lake(root) if "://" in root or Path(root).is_dir() else None
    wrong = {name: _why_wrong(lake, name) for name in names}
    if is_json:
        show_json([{"stream": name, "error": error} for name, error in wrong.items()])
    else:
        rows = [[name, error or "right"] for name, error in wrong.items()]
        say("\n".join(text_table(("stream", ""), rows, left=(0, 1))[1:]))
    return int(any(wrong.values()) or _is_unfit())


def _is_unfit() -> bool:
    """Whether no job would start with the Spark and Delta that are installed; says why."""
    try:
        refuse_unfit(installed_versions())
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return True
    return False


def _why_wrong(lake: Lake | None, name: str) -> str | None:
    try:
        source = source_named(stream_named(name).source)
        if lake is not None:
            refuse_other_fields(lake, source)
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
    """Run the test of a stream or of a source, which is in tests/streams, without a JVM."""
    files = scaffold.files_of_tests(PROJECT, name)
    if name in stream_names():
        stream_named(name)  # says what is wrong with its file
    there = [str(file) for file in files if file.is_file()]
    if not there:
        missing = " and ".join(str(file.relative_to(PROJECT)) for file in files)
        raise MistakeError(
            f"{missing} is not there: docs/testing.md has ones to go by",
            code="nothing_there",
            subject=name,
        )
    command = [sys.executable, "-m", "pytest", "-q", *there]
    return subprocess.run(command, cwd=PROJECT, check=False).returncode


@command("shell", "shell --lake /data/lake", PANEL)
def shell(lake: LakeOption) -> int:
    """Start a pyspark shell with the lake's tables as views, and read_state('NAME')."""
    # In the place of this process: Ctrl-C is the shell's.
    command = shell_command(lake.root)
    os.execve(command[0], command, os.environ | shell_environment(lake.root))  # noqa: S606 (our own words)
