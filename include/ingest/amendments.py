"""Amendments of a source's bronze, its watermark set back or a key erased, and who waits for them.

An amendment is notes in the ingest log: that it was begun, that bronze is amended, and that it is
done. There is one at a time. Until bronze is amended nothing is ingested. A stream waits until its
state is rebuilt from bronze as it is then: an older one is complete beyond the watermark, or brings
the key back.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from include.ingest.ingest_log import Entry, Ingestion, Logged, read_log
from include.lake.errors import LakeError
from include.lake.generations import GenerationRow, read_generations
from include.lake.paths import Lake
from include.registry import streams_of
from include.settings import Source, Stream

AMENDMENT = "amendment"  # in a note: the number of the amendment that the note is of, from 1
ERASURE, SET_WATERMARK = "erasure", "set_watermark"
# For scrypt: a guess costs a few hundredths of a second and 16 MiB.
COST, BLOCK, PARALLEL = 2**14, 8, 1


@dataclass(frozen=True)
class Amendment:
    """An amendment, as its notes have it."""

    source: str
    number: int
    kind: str  # ERASURE or SET_WATERMARK
    to_us: int = 0  # what the watermark is set back to
    # An erasure names its key by a hash alone:
    fields: Sequence[str] = ()  # of bronze
    salt: str = ""  # hex
    key_hash: str = ""
    rows_bronze: int = 0
    rows_quarantined: int = 0
    files_landed: int = 0
    asked_at: str = ""
    # The first amended version of bronze; for a watermark set back the first amended `ingested_at`.
    amended: int | None = None
    done_at: str | None = None

    @property
    def is_done(self) -> bool:
        return self.done_at is not None

    @property
    def is_amended(self) -> bool:
        return self.amended is not None

    def is_of(self, key: Mapping[str, object]) -> bool:
        """True if it erases just this key: values as text or None, by their fields."""
        return sorted(key) == self.fields and key_hash(key, self.salt) == self.key_hash

    def is_known_to(self, row: GenerationRow | None) -> bool:
        """True if a generation was rebuilt from amended bronze: never one that a first run began."""
        column = "bronze_version" if self.kind == ERASURE else "bronze_ingested_at_us"
        made_of: int | None = None if row is None else row[column]
        return made_of is not None and self.amended is not None and made_of >= self.amended

    def unfinished(self, who: str) -> LakeError:
        """The error for `who` waits for it."""
        source, is_erasure = self.source, self.kind == ERASURE
        what, command = "set-watermark", f"./stateful set-watermark {source} --apply"
        if is_erasure:
            what, command = "an erasure of a key", f"./stateful erase {source} KEY --apply"
        said = f"{what} of {source} was begun and is not finished, and {who} waits for it"
        code = "unfinished_erasure" if is_erasure else "unfinished_set_watermark"
        return LakeError(said, code=code, subject=source, command=command)


class Amendments(NamedTuple):
    """All amendments of a source's bronze, in order."""

    known: Sequence[Amendment]

    @property
    def open(self) -> Amendment | None:
        """The amendment that was begun and is not finished; None when there is none."""
        return next((each for each in self.known if not each.is_done), None)

    @property
    def set_watermark(self) -> Amendment | None:
        """The set-watermark that was begun, and that bronze does not have yet."""
        known = [e for e in self.known if e.kind == SET_WATERMARK and not e.is_done]
        return next((each for each in known if not each.is_amended), None)

    def unfinished_erasure(self, row: GenerationRow | None) -> Amendment | None:
        """The open erasure, if a stream's generation may have its key."""
        erasure = self.open
        if erasure is None or erasure.kind != ERASURE or erasure.is_known_to(row):
            return None
        # A stream that never ran will read bronze as it is.
        return None if row is None and erasure.is_amended else erasure

    def unknown_set_watermark(self, row: GenerationRow | None) -> Amendment | None:
        """The newest set-watermark, also a finished one, if a stream's generation is from before it."""
        known = [each for each in self.known if each.kind == SET_WATERMARK]
        return known[-1] if known and not known[-1].is_known_to(row) else None

    def refuse_before_amended(self, who: str) -> None:
        """Raise LakeError for `who` until bronze is amended."""
        # Rows that land once it is erased are not of the key, or were landed again.
        if self.open is not None and not self.open.is_amended:
            raise self.open.unfinished(who)

    def refuse_state(self, stream: str, row: GenerationRow | None) -> None:
        """Raise LakeError where a stream's generation is not from amended bronze."""
        amendment = self.unfinished_erasure(row) or self.unknown_set_watermark(row)
        if amendment is None:
            return
        if not amendment.is_done:
            raise amendment.unfinished(stream)
        raise LakeError(
            f"the state of {stream} is from before the watermark of its source was set back",
            code="unfinished_set_watermark",
            subject=stream,
            command=f"./stateful rebuild {stream} --apply",
        )


def amendments_in(logged: Logged | None, source: str) -> Amendments:
    """The amendments that a source's ingest log has."""
    notes: dict[int, dict[str, Any]] = {}
    for note in [] if logged is None else logged.notes():
        if AMENDMENT in note:
            notes.setdefault(note.pop(AMENDMENT), {}).update(note)
    return Amendments([Amendment(source, number, **notes[number]) for number in sorted(notes)])


def amendments_of(lake: Lake, source: str) -> Amendments:
    """The amendments of a source; opens its ingest log."""
    return amendments_in(read_log(lake, source), source)


def key_hash(key: Mapping[str, object], salt: str) -> str:
    """A hash in hex, the same for the same values of the same fields."""
    text = json.dumps(dict(key), sort_keys=True, default=str).encode()
    return hashlib.scrypt(text, salt=bytes.fromhex(salt), n=COST, r=BLOCK, p=PARALLEL).hex()


# Under the source's lease. Once one is begun, nothing but it commits to bronze, or runs.
def begin_set_watermark(lake: Lake, source: Source, to_us: int) -> Amendment:
    return _begin(lake, source, {"kind": SET_WATERMARK, "to_us": to_us})


def begin_erasure(
    lake: Lake, source: Source, key: Mapping[str, object], **counts: int
) -> Amendment:
    salt, asked_at = secrets.token_hex(16), datetime.now(UTC).isoformat()
    hashed = {"fields": sorted(key), "salt": salt, "key_hash": key_hash(key, salt)}
    return _begin(lake, source, {"kind": ERASURE, **hashed, "asked_at": asked_at, **counts})


def _begin(lake: Lake, source: Source, known: Mapping[str, Any]) -> Amendment:
    number = 1 + len(amendments_of(lake, source.name).known)
    amendment = Amendment(source.name, number, **known)
    note(lake, source, amendment, **known)
    return amendment


def note(lake: Lake, source: Source, amendment: Amendment, **known: Any) -> None:
    """Log what is known of an amendment by now: `amended`, `done_at`."""
    ingestion = Ingestion(lake, source)
    ingestion.again(lambda: ingestion.commit(Entry(note={AMENDMENT: amendment.number} | known)))


def note_done(lake: Lake, source: Source, amendment: Amendment) -> None:
    note(lake, source, amendment, done_at=datetime.now(UTC).isoformat())


def amended_streams(lake: Lake, source: str) -> list[tuple[Stream, GenerationRow]]:
    """The streams to rebuild, those that ever ran, with their current generations."""
    known = [(s, read_generations(lake, s.name).current) for s in streams_of(source)]
    return [(stream, row) for stream, row in known if row is not None]
