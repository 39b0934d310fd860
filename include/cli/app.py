"""The frame of the command line: arguments, options, errors and exit codes.

Exit codes: 0 done, 1 the work failed, 2 a wrong argument or setting, with one line on stderr.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer
from deltalake.exceptions import DeltaError

from include.fold.admission import parse_instant
from include.lake.delta_log import message_of, panics_as_errors
from include.lake.errors import StatefulError, last_line, wrong_argument
from include.lake.paths import Lake, open_lake
from include.lake.s3 import is_s3
from include.registry import source_named, source_names, stream_named, stream_names
from include.settings import PROJECT, Source, Stream, absolute_lake
from include.setup.install import OF_S3, set_up
from include.setup.java import S3
from include.spark.submit import say
from include.text_table import printable

DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 128 + signal.SIGINT
CHECKED = (3, 4)  # of `plan --check`
# Of the lake or the machine; their own message is enough.
FAILURES = (OSError, DeltaError)

app = typer.Typer(
    name="stateful",
    help="Run, inspect and maintain the streams of include/streams.",
    epilog="Each command has a --help with an example. The Makefile has what developers need.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command(
    name: str, example: str, panel: str
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register a function that returns an exit code, with a command to paste under its help."""
    return app.command(name, epilog=f"Example:  ./stateful {example}", rich_help_panel=panel)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        given = list(sys.argv[1:] if argv is None else argv) or ["--help"]
        with panics_as_errors():
            code = app(given, "stateful", standalone_mode=False) or DONE
        sys.stdout.flush()
    except BrokenPipeError:
        # As of `head`: what is still to be written goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except typer.TyperException as error:
        return _refused(wrong_argument("", error.format_message()), given)
    except StatefulError as error:
        return _refused(error, given)
    except FAILURES as error:
        sys.stderr.write(printable(f"error: {message_of(error)}\n"))
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    # A job may end with any code, or with minus a signal's number.
    return code if code in (DONE, REFUSED, *CHECKED, INTERRUPTED) else FAILED


def _refused(error: StatefulError, given: Sequence[str]) -> int:
    """Print the error, with `--json` also as an object on stdout; return its exit code."""
    if "--json" in given:
        show_json(error.record())
    sys.stderr.write(printable(f"{last_line(error)}\n"))
    return error.exit_code


def show_json(value: object) -> None:
    """Print one JSON value."""
    sys.stdout.write(f"{json.dumps(value, default=datetime.isoformat)}\n")


def _lake_option(parser: Callable[[str], Lake | str], text: str) -> Any:
    return typer.Option(
        "--lake",
        envvar="LAKE",
        metavar="FOLDER",
        parser=parser,
        default_factory=lambda: str(PROJECT / "lake"),
        show_default="lake, in the project",
        help=text,
    )


def found_lake(root: str) -> str:
    """The absolute root of a lake; fetches the jars for S3 when a lake is first there."""
    lake = absolute_lake(root)
    if is_s3(lake) and S3.missing():
        set_up([OF_S3])
    return lake


LakeOption = Annotated[
    Lake, _lake_option(lambda root: open_lake(found_lake(root)), "The lake's folder or URI.")
]
AnyLakeOption = Annotated[
    str, _lake_option(found_lake, "The lake's folder or URI; it need not exist yet.")
]
AnyStreamArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", autocompletion=stream_names, help="A stream; all of them if none."
    ),
]


def _argument(name: str, text: str, parser: Any = None, names: Any = None) -> Any:
    parse = parser or partial(parse_instant, name)
    return typer.Argument(metavar=name, parser=parse, autocompletion=names, help=text)


def _option(name: str, text: str) -> Any:
    return typer.Option(name, metavar="INSTANT", parser=partial(parse_instant, name), help=text)


A_STREAM, A_SOURCE = "A stream of include/streams.", "A source of include/streams/sources.py."
StreamArgument = Annotated[Stream, _argument("NAME", A_STREAM, stream_named, stream_names)]
SourceArgument = Annotated[Source, _argument("SOURCE", A_SOURCE, source_named, source_names)]
DownstreamOption = Annotated[
    bool,
    typer.Option("--downstream", help="Then all streams that read its table, and those behind."),
]
FromArgument = Annotated[
    datetime, _argument("FROM", "Start, inclusive: a date or an instant (UTC).")
]
UntilArgument = Annotated[
    datetime, _argument("UNTIL", "End, exclusive: a date or an instant (UTC).")
]
UntilOption = Annotated[
    datetime | None, _option("--until", "Rebuild only until then (UTC): live goes on from there.")
]
TO = "The new watermark (UTC); left out: finish a change that was interrupted."
ToOption = Annotated[datetime | None, _option("--to", TO)]
StartOption = Annotated[
    datetime | None, _option("--start", "First hour, UTC; the last full day if not given.")
]
ApplyOption = Annotated[bool, typer.Option("--apply", help="Carry the plan out.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, and nothing else.")
]


def planned(plan: str, is_applied: bool, apply: Callable[[], int | None]) -> int:
    """Show a plan, and carry it out if `is_applied`; return the exit code."""
    say(plan)
    if is_applied:
        return apply() or 0
    say("nothing was changed: --apply carries it out")
    return 0
