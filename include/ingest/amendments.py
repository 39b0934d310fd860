"""Amendments of a source's bronze: repairs of its clock, erasures of keys; and who has to wait for them.

An amendment is notes in the source's ingest log: that it was begun, that bronze is amended, and that it
is done. Until bronze is amended nothing is ingested. A stream waits until its state is made of bronze as
it is then; one that was made before has settled more than the clock of now has, or brings the key back.

One row under a wrong machine clock, or one producer far ahead, raises the clock of bronze (M, see
clock.py), and what all others send is late. A repair sets M back by one commit of bronze. An erasure
names its key by a hash alone.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from include.fold.admission import micros_of
from include.ingest.ingest_log import Ingestion, Logged, read_log
from include.lake.errors import LakeError
from include.lake.generations import GenerationRow, read_generations
from include.lake.paths import Lake
from include.registry import streams_of
from include.settings import Source, Stream

Told = TypeVar("Told")
# In a note: the number of the amendment that the note is of, from 1.
ERASURE, REPAIR = "erasure", "repair"
# Of scrypt: a guess costs a few hundredths of a second and 16 MiB.
COST, BLOCK, PARALLEL = 2**14, 8, 1


@dataclass(frozen=True)
class ClockRepair:
    """What the notes of a repair of the clock say, instants in microseconds."""

    source: str
    repair: int
    to_us: int  # what M is set back to
    reset_at_us: int | None = None  # `ingested_at` of the commit that does it; None: not made yet
    is_done: bool = False  # every stream was reseeded

    @property
    def is_reset(self) -> bool:
        """Whether M is set back."""
        return self.reset_at_us is not None

    def is_known_to(self, row: GenerationRow | None) -> bool:
        """Whether a generation began with all of bronze up to the commit that set M back.

        One that a first run began never does: in its first batch it would read both what M was
        and what it is now.
        """
        if row is None or self.reset_at_us is None or row["bronze_ingested_at"] is None:
            return False
        return micros_of(row["bronze_ingested_at"]) >= self.reset_at_us

    def unfinished(self, who: str) -> LakeError:
        """The error of `who` waits for it."""
        source = self.source
        return LakeError(
            f"a repair of the clock of {source} was begun and is not finished, and {who} waits for it",
            code="unfinished_repair",
            subject=source,
            command=f"./stateful repair-clock {source} --apply",
        )


@dataclass(frozen=True)
class Erasure:
    """What the notes of an erasure say."""

    source: str
    erasure: int
    fields: list[str]  # of bronze
    salt: str  # hex
    key_hash: str
    bronze_id: str
    rows_bronze: int = 0
    rows_quarantined: int = 0
    files_landed: int = 0
    asked_at: str = ""
    bronze_version: int | None = None  # None: bronze may still have rows of the key
    done_at: str | None = None  # its certificate: nothing is left of the key

    @property
    def is_done(self) -> bool:
        return self.done_at is not None

    def is_of(self, key: Mapping[str, object]) -> bool:
        """Whether it erases just this key: values as text or None, by their fields."""
        return sorted(key) == self.fields and key_hash(key, self.salt) == self.key_hash

    def is_known_to(self, row: GenerationRow | None) -> bool:
        """Whether a generation was made of bronze as it is without the key."""
        if row is None or self.bronze_version is None or row["bronze_version"] is None:
            return False
        is_same = row["bronze_id"] == self.bronze_id
        return bool(is_same and row["bronze_version"] >= self.bronze_version)

    def unfinished(self, who: str) -> LakeError:
        """The error of `who` waits for it."""
        return LakeError(
            f"an erasure of a key of {self.source} was begun and is not finished, and {who} waits for it: "
            + how_to_finish(self.source),
            code="unfinished_erasure",
            subject=self.source,
        )


class Amendments(NamedTuple):
    """All of a source's bronze that is there now, in order."""

    erasures: list[Erasure]
    repairs: list[ClockRepair]

    @property
    def open_erasure(self) -> Erasure | None:
        """The one that was begun and is not finished; None when there is none."""
        return next((erasure for erasure in self.erasures if not erasure.is_done), None)

    def unfinished_erasure(self, row: GenerationRow | None) -> Erasure | None:
        """The open erasure, if a stream's generation may have its key."""
        erasure = self.open_erasure
        if erasure is None or erasure.is_known_to(row):
            return None
        # A stream that never ran is made of bronze as it is.
        return None if row is None and erasure.bronze_version is not None else erasure

    @property
    def repair(self) -> ClockRepair | None:
        """The newest; None when there was none."""
        return self.repairs[-1] if self.repairs else None

    @property
    def open_repair(self) -> ClockRepair | None:
        """The one that was begun and is not finished; None when there is none."""
        return None if self.repair is None or self.repair.is_done else self.repair

    def refuse_before_amended(self, who: str) -> None:
        """LakeError of `who` while bronze goes by the old M, or may have rows of a key that is being erased."""
        erasure, repair = self.open_erasure, self.repair
        # What comes once it is without the key is not of that, or was landed again.
        if erasure is not None and erasure.bronze_version is None:
            raise erasure.unfinished(who)
        if repair is not None and not repair.is_reset:
            raise repair.unfinished(who)


def amendments_in(logged: Logged | None, source: str) -> Amendments:
    """Those that the source's ingest log has."""
    if logged is None:
        return Amendments([], [])
    erasures = _told(logged, source, ERASURE, Erasure)
    return Amendments(erasures, _told(logged, source, REPAIR, ClockRepair))


def amendments_of(lake: Lake, source: str) -> Amendments:
    """The same, for who has not opened the log."""
    return amendments_in(read_log(lake, source), source)


def _told(logged: Logged, source: str, kind: str, make: Callable[..., Told]) -> list[Told]:
    known: dict[int, dict[str, Any]] = {}
    for note in logged.notes():
        if kind in note:
            known.setdefault(note[kind], {}).update(note)
    return [make(source, **known[number]) for number in sorted(known)]


def key_hash(key: Mapping[str, object], salt: str) -> str:
    """Hex; the same for the same values of the same fields."""
    told = json.dumps(dict(key), sort_keys=True, default=str).encode()
    made = hashlib.scrypt(told, salt=bytes.fromhex(salt), n=COST, r=BLOCK, p=PARALLEL)
    return made.hex()


# All under the source's lease. Once an amendment is begun, nothing but it commits to bronze, or runs.
def begin_repair(lake: Lake, source: Source, to_us: int) -> None:
    """Log that M is to be set back."""
    note(lake, source, REPAIR, 1 + len(amendments_of(lake, source.name).repairs), to_us=to_us)


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
    number = 1 + len(amendments_of(lake, source.name).erasures)
    note(lake, source, ERASURE, number, **told, **counts)


def note(lake: Lake, source: Source, kind: str, number: int, **told: Any) -> None:
    """Log what is new of an amendment, by its fields."""
    ingestion = Ingestion.open(lake, source)
    ingestion.again(lambda: ingestion.take_note({kind: number} | told))


# Who has to wait
def amended_streams(lake: Lake, source: str) -> list[tuple[Stream, GenerationRow]]:
    """The streams that are reseeded, with their current generations: those that ever ran."""
    known = [(s, read_generations(lake, s.name).current) for s in streams_of(source)]
    return [(stream, row) for stream, row in known if row is not None]


def how_to_finish(source: str) -> str:
    return f"finish it, with the same key: `./stateful erase {source} KEY --apply`"
