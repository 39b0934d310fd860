"""The command line behind `./stateful`: `python -m include.cli`."""

import sys
from collections.abc import Sequence
from importlib import import_module

import typer

from include.streams import FOLDER

# Each registers its commands, in the order of --help.
FILES = ("commands", "deploy", "author")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    load(1 if words[:1] == ["validate"] else 2)
    return int(import_module("include.cli.app").main(argv))


def load(if_wrong: int = 2) -> typer.Typer:
    """The command line with all commands; SystemExit with code `if_wrong` when sources.py is wrong."""
    try:
        import_module("include.streams.sources")
    except Exception as error:
        kind = type(error).__name__
        sys.stderr.write(f"error: {FOLDER}/sources.py: {kind}: {error}\n")
        raise SystemExit(if_wrong) from error
    for file in FILES:
        import_module(f"include.cli.{file}")
    found: typer.Typer = import_module("include.cli.app").app
    return found


if __name__ == "__main__":
    sys.exit(main())
