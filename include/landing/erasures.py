"""Erasures of keys, `ops/erasures`: which have begun, and who has to wait for them.

A row is the intent first, and the certificate in the end. It names the key by a hash alone. From
the intent on nothing is ingested and no stream of the source runs until it knows bronze as it is
without the key: a stream's state that was made before would bring the key back.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from include.lake.generations import GenerationRow
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake

KEY = ("source", "erasure")
# Of scrypt: a guess costs a few hundredths of a second and 16 MiB.
COST, BLOCK, PARALLEL = 2**14, 8, 1


@dataclass(frozen=True)
class Erasure:
    """A row of `ops/erasures`."""

    source: str
    erasure: int  # from 1
    fields: tuple[str, ...]
    salt: str
    key_hash: str
    bronze_id: str
    bronze_version: int | None  # None: bronze may still have rows of the key
    is_done: bool

    def is_of(self, key: Mapping[str, object]) -> bool:
        """Whether it erases just this key: values as text or None, by their fields."""
        return tuple(sorted(key)) == self.fields and key_hash(key, self.salt) == self.key_hash


def key_hash(key: Mapping[str, object], salt: str) -> str:
    """Hex; the same for the same values of the same fields."""
    told = json.dumps(dict(key), sort_keys=True, default=str).encode()
    made = hashlib.scrypt(told, salt=bytes.fromhex(salt), n=COST, r=BLOCK, p=PARALLEL)
    return made.hex()


def erasures_of(lake: Lake, source: str) -> list[Erasure]:
    """All of a source, in order."""
    rows = read_ops(lake, "erasures", {"source": source}).to_pylist()
    return sorted(map(_of_row, rows), key=lambda erasure: erasure.erasure)


def open_erasure(lake: Lake, source: str) -> Erasure | None:
    """The one that was begun and not finished; None when there is none."""
    return next((e for e in erasures_of(lake, source) if not e.is_done), None)


def _of_row(row: Mapping[str, Any]) -> Erasure:
    names = ("source", "erasure", "salt", "key_hash", "bronze_id", "bronze_version")
    known = {name: row[name] for name in names}
    return Erasure(
        **known, fields=tuple(json.loads(row["fields"])), is_done=row["done_at"] is not None
    )


def begin_erasure(
    lake: Lake, source: str, key: Mapping[str, object], bronze_id: str, counts: Mapping[str, int]
) -> Erasure:
    """Write the intent, with how much there is of the key."""
    number = 1 + max((e.erasure for e in erasures_of(lake, source)), default=0)
    salt = secrets.token_hex(16)
    row: dict[str, Any] = {
        "source": source,
        "erasure": number,
        "fields": json.dumps(sorted(key)),
        "salt": salt,
        "key_hash": key_hash(key, salt),
        "asked_at": datetime.now(UTC),
        "bronze_id": bronze_id,
    } | dict(counts)
    append_ops(lake, "erasures", [row], (f"erase/{source}", number))
    made = open_erasure(lake, source)
    assert made is not None  # it is open
    return made


def record(lake: Lake, erasure: Erasure, **columns: Any) -> None:
    """Fill columns of its row."""
    key = {"source": erasure.source, "erasure": erasure.erasure}
    update_ops(lake, "erasures", KEY, [key | columns])


def knows(row: GenerationRow | None, erasure: Erasure) -> bool:
    """Whether a generation was made of bronze as it is without the key."""
    if row is None or erasure.bronze_version is None or row["bronze_version"] is None:
        return False
    return bool(
        row["bronze_id"] == erasure.bronze_id and row["bronze_version"] >= erasure.bronze_version
    )


def why_wait(lake: Lake, source: str, who: str, row: GenerationRow | None = None) -> str | None:
    """Why `who` must not go on with the source's rows now, and what to do; None: nothing stops it.

    `row` is of the current generation of a stream.
    """
    begun = open_erasure(lake, source)
    if begun is None or (row is not None and knows(row, begun)):
        return None
    if row is None and begun.bronze_version is not None:
        return None  # what comes from now on is not of the key, or was landed again
    return (
        f"an erasure of a key of {source} was begun and is not finished, and {who} waits for it: "
        + how_to_finish(source)
    )


def how_to_finish(source: str) -> str:
    return f"finish it, with the same key: `./stateful erase {source} KEY --apply`"
