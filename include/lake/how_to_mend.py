"""What mends a table, or a checkpoint, of which a file is lost or damaged: in words, and as a command."""

import re
from typing import NamedTuple

from include.lake.errors import LakeError

PUT_BACK = "put it back from a copy of the lake that is not older"
PART = re.compile(
    r"(bronze|quarantine|ingest_log|tables|dead_letters|ops|checkpoints)"
    r"/([^/]+)"
)
OF_SOURCE = ("bronze", "quarantine", "ingest_log")


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
    found = PART.findall(path)
    if not found:
        return Mend(PUT_BACK)
    kind, subject = found[-1]
    if kind in OF_SOURCE:
        source = subject
        return Mend(
            f"{PUT_BACK}; or, to ingest {source} anew from where it came",
            f"./stateful ingest {source} --from-scratch --apply",
        )
    if kind == "tables":
        return Mend(
            f"{PUT_BACK}; or make it anew from bronze",
            f"./stateful reseed {subject} --recompute --apply",
        )
    if kind in ("checkpoints", "dead_letters"):
        return Mend(
            f"{PUT_BACK}; or make state and table anew", f"./stateful reseed {subject} --apply"
        )
    return Mend("it is moved aside, and begun anew, by whoever reads it next")


def how_to_trust_again(stream: str) -> Mend:
    """For a product table that is not what was recorded of it."""
    return Mend(
        "put it back from a copy that is not older, or make it anew from bronze",
        f"./stateful reseed {stream} --apply",
    )
