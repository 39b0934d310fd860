"""Erasures of keys: which have begun, and who has to wait for them.

An erasure is notes in the source's ingest log: that it was begun, in which version bronze is without the
key, and, as its certificate, that nothing of the key is left. They name the key by a hash alone. Until
bronze is without the key nothing is ingested; a stream waits until its state is made of bronze as it is then,
as one that was made before would bring the key back.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from include.lake.generations import GenerationRow
from include.lake.paths import Lake, LakeError
from include.landing.ingest_log import Ingestion, Logged, read_log
from include.settings import Source

ERASURE = "erasure"  # in a note: the number of the erasure that the note is of
# Of scrypt: a guess costs a few hundredths of a second and 16 MiB.
COST, BLOCK, PARALLEL = 2**14, 8, 1


@dataclass(frozen=True)
class Erasure:
    """What the notes of an erasure say."""

    source: str
    erasure: int  # from 1
    fields: tuple[str, ...]  # of bronze
    salt: str  # hex
    key_hash: str
    bronze_id: str
    rows_bronze: int = 0
    rows_quarantined: int = 0
    files_landed: int = 0
    asked_at: str = ""
    bronze_version: int | None = None  # None: bronze may still have rows of the key
    done_at: str | None = None

    @property
    def is_done(self) -> bool:
        return self.done_at is not None

    def is_of(self, key: Mapping[str, object]) -> bool:
        """Whether it erases just this key: values as text or None, by their fields."""
        return tuple(sorted(key)) == self.fields and key_hash(key, self.salt) == self.key_hash


def key_hash(key: Mapping[str, object], salt: str) -> str:
    """Hex; the same for the same values of the same fields."""
    told = json.dumps(dict(key), sort_keys=True, default=str).encode()
    made = hashlib.scrypt(told, salt=bytes.fromhex(salt), n=COST, r=BLOCK, p=PARALLEL)
    return made.hex()


def erasures_in(logged: Logged, source: str) -> list[Erasure]:
    """All of a source, in order."""
    known: dict[int, dict[str, Any]] = {}
    for _, note in logged.notes():
        if ERASURE in note:
            known.setdefault(note[ERASURE], {}).update(note)
    return [
        Erasure(source, **{**known[number], "fields": tuple(known[number]["fields"])})
        for number in sorted(known)
    ]


def open_in(logged: Logged | None, source: str) -> Erasure | None:
    """The one that was begun and is not finished; None when there is none."""
    known = [] if logged is None else erasures_in(logged, source)
    return next((erasure for erasure in known if not erasure.is_done), None)


def erasures_of(lake: Lake, source: str) -> list[Erasure]:
    """All of a source, in order, for who has not opened the log."""
    logged = read_log(lake, source)
    return [] if logged is None else erasures_in(logged, source)


def open_erasure(lake: Lake, source: str) -> Erasure | None:
    """The open one, for who has not opened the log."""
    return open_in(read_log(lake, source), source)


def begin_erasure(
    lake: Lake, source: Source, key: Mapping[str, object], *, bronze_id: str, **counts: int
) -> None:
    """Log that a key is to be erased, with how much there is of it."""
    salt = secrets.token_hex(16)
    told = {
        "fields": sorted(key),
        "salt": salt,
        "key_hash": key_hash(key, salt),
        "bronze_id": bronze_id,
        "asked_at": datetime.now(UTC).isoformat(),
    }
    note_erasure(lake, source, 1 + len(erasures_of(lake, source.name)), **told, **counts)


def end_erasure(lake: Lake, source: Source, erasure: Erasure) -> None:
    """Log the certificate: nothing is left of the key."""
    note_erasure(lake, source, erasure.erasure, done_at=datetime.now(UTC).isoformat())


def note_erasure(lake: Lake, source: Source, number: int, **told: Any) -> None:
    """Log what is new of an erasure, by its fields. Under the source's lease."""
    ingestion = Ingestion.open(lake, source)
    ingestion.again(lambda: ingestion.take_note({ERASURE: number} | told))


def knows(row: GenerationRow | None, erasure: Erasure) -> bool:
    """Whether a generation was made of bronze as it is without the key."""
    if row is None or erasure.bronze_version is None or row["bronze_version"] is None:
        return False
    return bool(
        row["bronze_id"] == erasure.bronze_id and row["bronze_version"] >= erasure.bronze_version
    )


def why_wait(begun: Erasure | None, who: str, row: GenerationRow | None = None) -> str | None:
    """Why `who` must not go on with the source's rows now, and what to do; None: nothing stops it.

    `begun`: the open erasure. `row` is of the current generation of a stream; None of what reads bronze alone.
    """
    if begun is None or (row is not None and knows(row, begun)):
        return None
    if row is None and begun.bronze_version is not None:
        return None  # what comes from now on is not of the key, or was landed again
    return (
        f"an erasure of a key of {begun.source} was begun and is not finished, and {who} waits for it: "
        + how_to_finish(begun.source)
    )


def refuse_unerased(logged: Logged | None, source: str, what: str) -> None:
    """LakeError while bronze may have rows of a key that is being erased."""
    if why := why_wait(open_in(logged, source), what):
        raise LakeError(why, code="unfinished_erasure", subject=source)


def how_to_finish(source: str) -> str:
    return f"finish it, with the same key: `./stateful erase {source} KEY --apply`"
