"""Errors that a person can act on: each has a code, what it is about, and the command that mends it.

`docs/errors.md` lists the codes.
"""

import re
from typing import Any, NamedTuple

CODES = {
    "airflow_failed": "A part of Airflow ended by itself, never answered, or could not read a Dag.",
    "already_running": "`make run` serves from this folder already.",
    "before_initial_state": "What was asked for is before the stream's initial state, which stands for all of it.",
    "changed_by_others": "A table of the lake is not as our jobs left it: others have changed it.",
    "changed_input": "The source's table updated or deleted rows, which bronze cannot follow.",
    "check_failed": "Rows do not meet one of the stream's data checks; nothing of them is published.",
    "cleaned_up_version": "The clean-up of a table's log has taken away a version that somebody has still to read.",
    "code_changed": 'The stream\'s code is new, and its entry says on_code_change="stop": a person is to decide.',
    "foreign_properties": "Others have set a property of a table with which it cannot be written as it must.",
    "lease_lost": "Another job has taken over the stream or source of one that stood still.",
    "lease_taken": "Another job works on the stream or source; it is named.",
    "lost_input": "Where a source's rows come from has lost some that were not ingested.",
    "mapped_state": "The state goes back to one that was mapped, and nothing makes what is before it.",
    "missing_jars": "Jars that jobs need are not there yet.",
    "name_taken": "What was to be written new has the name of what is there.",
    "no_lake": "There is no lake at the place that was given.",
    "not_erasable": "A key cannot be erased as the lake is: something that may have it would be left.",
    "not_installed": "The machine lacks what the project needs, or it could not be fetched.",
    "not_migratable": "The older state of a stream cannot be mapped to the new one.",
    "not_settled": "The stream's table is not complete so far yet.",
    "no_interval": "An update table shows the live state: no interval of it can be recomputed.",
    "nothing_there": "There is nothing yet of what the command is about.",
    "of_other_times": "Tables, checkpoints and ingest logs that belong together are of different times, or one is missing.",
    "other_columns": "A table has other columns than its stream now writes.",
    "rows_do_not_add_up": "Rows that were read are not those that were written; nothing more is written.",
    "settings_changed": "Settings, code or fields do not go with what the tables and states have of earlier ones.",
    "too_many_groups": "A source with watermark_per has more groups than watermark_groups allows.",
    "too_much": "More was asked for than is looked at at once.",
    "unfinished_erasure": "An erasure of a key was begun and is not finished; others wait for it.",
    "unfinished_repair": "A repair of a source's clock was begun and is not finished; others wait for it.",
    "unfit_versions": "Parts of Spark and Delta that are installed do not fit together.",
    "unknown_source": "No source has the name that was given.",
    "unknown_stream": "No stream has the name that was given.",
    "unreachable_master": "Nothing answers at the address of Spark's master.",
    "unreadable_checkpoint": "A stream's checkpoint has lost a file, or has one that cannot be read.",
    "unreadable_input": "Where a source's rows come from cannot be read, or has what is not read.",
    "unreadable_lake": "The lake, or a table or checkpoint in it, is not there or cannot be read.",
    "unreadable_savepoint": "A savepoint that is needed is gone, or is not what was written.",
    "unreadable_table": "A table has lost a file, or has one that cannot be read.",
    "wrong_argument": "An argument of the command cannot be what was given.",
    "wrong_definition": "A stream's records or functions do not fit together.",
    "wrong_initial_state": "A stream's initial state is not what its records say, or cannot be read.",
    "wrong_lake": "The place that was given cannot be a lake.",
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
    """The error for what a command or a job was given."""
    return SettingsError(message, code="wrong_argument", subject=subject)


def settings_changed(subject: str, message: str) -> SettingsError:
    """The error for what does not go with what the tables and states have of earlier settings."""
    return SettingsError(message, code="settings_changed", subject=subject)


PUT_BACK = "put it back from a copy of the lake that is not older"
PART = re.compile(
    r"(bronze|quarantine|ingest_log|tables|dead_letters|ops|checkpoints)"
    r"/([^/]+)"
)
OF_SOURCE = ("bronze", "quarantine", "ingest_log")
STATE_ANEW = ("make state and table anew", "./stateful reseed {} --apply")
# How each part is made again where there is no copy of it; `ops` is by whoever reads it next.
ANEW = {
    **dict.fromkeys(
        OF_SOURCE,
        ("ingest {} anew from where it came", "./stateful ingest {} --from-scratch --apply"),
    ),
    "tables": ("make it anew from bronze", "./stateful reseed {} --recompute --apply"),
    "checkpoints": STATE_ANEW,
    "dead_letters": STATE_ANEW,
}


class Mend(NamedTuple):
    """What is to be done, in words that end before the command, if there is one."""

    words: str
    command: str | None = None

    def __str__(self) -> str:
        return f"{self.words}: `{self.command}`" if self.command else self.words


def damaged(path: str, what: str) -> LakeError:
    """The error for a path in a lake, such as bronze/signals, of which `what` says what is wrong."""
    mend, subject = how_to_mend(path), subject_of(path)
    of_checkpoint = subject is not None and subject.startswith("checkpoints/")
    return LakeError(
        f"{what}: {mend.words}",
        code="unreadable_checkpoint" if of_checkpoint else "unreadable_table",
        subject=subject,
        command=mend.command,
    )


def subject_of(path: str) -> str | None:
    """The part of the lake that a path is in: a table, or all of a stream's checkpoints."""
    found = PART.findall(path)
    return "/".join(found[-1]) if found else None


def how_to_mend(path: str) -> Mend:
    """For a path in a lake, such as bronze/signals: how all that is in it is made right again."""
    kind, _, name = (subject_of(path) or "").partition("/")
    if kind == "ops":
        return Mend("it is moved aside, and begun anew, by whoever reads it next")
    if kind not in ANEW:
        return Mend(PUT_BACK)
    words, command = (text.format(name) for text in ANEW[kind])
    return Mend(f"{PUT_BACK}; or {words}", command)
