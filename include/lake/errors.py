"""Errors that a person can act on: each has a code, what it is about, and the command that mends it.

`docs/errors.md` lists the codes.
"""

import re
from typing import Any, NamedTuple


class StatefulError(Exception):
    """An error that a person can act on.

    `code` is one of docs/errors.md; `subject` a stream, a source, a table ("tables/user_counts"), a setting or
    a file; `command` the command line that mends it.
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
        """The text of the error, without the command that mends it."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"{self.message}: `{self.command}`" if self.command else self.message

    def record(self) -> dict[str, Any]:
        """Return the error as one JSON object."""
        names = ("code", "message", "subject", "command")
        return {"error": {name: getattr(self, name) for name in names}}


def last_line(error: StatefulError) -> str:
    """Return the last line of a command or job that ends with this error."""
    return f"error: {error} ({error.code})"


class SettingsError(StatefulError):
    """A setting is missing, unknown or out of range; `subject` names it."""

    code = "wrong_setting"


class LakeError(StatefulError):
    """The lake, or a table in it, is not there or cannot be read."""

    code = "unreadable_lake"


class RowCountError(StatefulError):
    """Rows were lost, or counted twice, on their way from landing to a stream's table."""

    code = "rows_do_not_add_up"
    exit_code = 1


def wrong_argument(subject: str, message: str) -> SettingsError:
    """Return the error for a wrong argument of a command or a job."""
    return SettingsError(message, code="wrong_argument", subject=subject)


def settings_changed(subject: str, message: str) -> SettingsError:
    """Return the error for settings that do not fit the tables and states of earlier ones."""
    return SettingsError(message, code="settings_changed", subject=subject)


PUT_BACK = "put it back from a copy of the lake that is not older"
PART = re.compile(r"(bronze|quarantine|ingest_log|tables|dead_letters|ops|checkpoints)/([^/]+)")
OF_SOURCE = ("bronze", "quarantine", "ingest_log")
STATE_REBUILD = ("rebuild state and table", "./stateful rebuild {} --apply")
INGEST_AGAIN = ("ingest {} again from its connector", "./stateful ingest {} --from-scratch --apply")
# The command that makes each part again where there is no copy of it; the next reader replaces `ops`.
MENDS = {
    **dict.fromkeys(OF_SOURCE, INGEST_AGAIN),
    "tables": ("rebuild it from bronze", "./stateful rebuild {} --full-refresh --apply"),
    "checkpoints": STATE_REBUILD,
    "dead_letters": STATE_REBUILD,
}


class Mend(NamedTuple):
    """The way to mend a part of the lake: words, and the command, if there is one."""

    words: str
    command: str | None = None

    def __str__(self) -> str:
        return f"{self.words}: `{self.command}`" if self.command else self.words


def damaged(path: str, what: str) -> LakeError:
    """Return the error for a damaged path in a lake, such as bronze/signals; `what` says what is wrong."""
    mend, subject = how_to_mend(path), subject_of(path)
    of_checkpoint = subject is not None and subject.startswith("checkpoints/")
    return LakeError(
        f"{what}: {mend.words}",
        code="unreadable_checkpoint" if of_checkpoint else "unreadable_table",
        subject=subject,
        command=mend.command,
    )


def subject_of(path: str) -> str | None:
    """Return the part of the lake that a path is in: a table, or all of a stream's checkpoints."""
    found = PART.findall(path)
    return "/".join(found[-1]) if found else None


def how_to_mend(path: str) -> Mend:
    """Return the way to mend all that is at a path in a lake, such as bronze/signals."""
    kind, _, name = (subject_of(path) or "").partition("/")
    if kind == "ops":
        return Mend("the next reader moves it to set_aside/ and begins a new one")
    if kind not in MENDS:
        return Mend(PUT_BACK)
    words, command = (text.format(name) for text in MENDS[kind])
    return Mend(f"{PUT_BACK}; or {words}", command)
