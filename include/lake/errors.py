"""Errors that a person can act on: each has a code, what it is about, and the command that mends it.

`docs/errors.md` lists the codes; it is made by `python -m include.lake.errors`.
"""

import sys
from typing import Any

PAGE = "docs/errors.md"
HEAD = """# Errors

Made by `.venv/bin/python -m include.lake.errors`. The last line of a command or job that was refused, or that failed, ends with one of
these codes in brackets, and before it with the command that mends it, if there is one. With `--json` a command prints them as one object:
`{"error": {"code": ..., "message": ..., "subject": ..., "command": ...}}`.

| code | meaning |
|---|---|"""

CODES = {
    "check_failed": "Rows do not meet one of the stream's data checks; nothing of them is published.",
    "lease_taken": "Another job works on the stream or source; it is named.",
    "lost_input": "Where a source's rows come from cannot be read, or has lost rows that were not ingested.",
    "unreadable_lake": "The lake, or a table or checkpoint in it, is not there or cannot be read.",
    "wrong_argument": "An argument of the command cannot be what was given.",
    "wrong_definition": "A stream's records or functions do not fit together.",
    "wrong_setting": "A setting is missing, unknown or out of range.",
}


class StatefulError(Exception):
    """An error that a person can act on.

    `code` is one of CODES. `subject` names what it is about: a stream, a source, a table
    ("tables/user_counts"), a setting, a file. `command` is the command line that mends it.
    """

    code = "unreadable_lake"
    subject: str | None = None
    command: str | None = None
    # Of the process that ends with it: 2 where the caller can mend it, 1 where the work failed.
    exit_code = 2

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        subject: str | None = None,
        command: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.subject = subject or self.subject
        self.command = command or self.command

    @property
    def message(self) -> str:
        """What is wrong, without the command that mends it."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"{self.message}: `{self.command}`" if self.command else self.message

    def record(self) -> dict[str, Any]:
        """The error as one JSON object."""
        told = {"code": self.code, "message": self.message}
        return {"error": told | {"subject": self.subject, "command": self.command}}


def last_line(error: StatefulError) -> str:
    """The line that people see last of a command or job that ends with this error."""
    return f"error: {error} ({error.code})"


def errors_page() -> str:
    """The page that lists all codes, as Markdown."""
    return "\n".join([HEAD, *(f"| `{code}` | {CODES[code]} |" for code in sorted(CODES))]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(errors_page())
