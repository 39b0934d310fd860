"""Whether the ingest checkpoint still knows all files that it has taken.

Spark knows them by its file log alone. Where a line of that is lost (a power cut), it takes the
file again, and each of its events would be in bronze twice. So each batch seals the log in
`ops/tables`, under the checkpoint's own name: how many files, and a sum over the hashes of their
names. Only when that does not fit, or was never written, are bronze and quarantine read for the
names they have: those that the log lacks are *lost*, and no batch takes them. They are kept with
the seal before the first batch is planned, so a run that repeats a batch leaves out the same.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow.compute as pc

from include.lake.findings import Finding
from include.lake.ops import upsert_ops
from include.lake.paths import Lake, dataset_of
from include.lake.table_seal import read_seal
from include.landing.position import read_file_log, read_query_id

MODULUS = 2**256
# Rows of a re-ingestion: file#quarantine_id. Quarantine has such a file under its own name.
REINGESTED = re.compile(r"#[0-9a-f]{32}$")
FILES_NAMED = 5


@dataclass(frozen=True)
class FileLog:
    """The files that the log had up to an offset, and those that it once had and lost."""

    offset: int = -1
    files: int = 0
    digest: int = 0
    lost: frozenset[str] = frozenset()

    def plus(self, entries: Iterable[tuple[str, int]]) -> "FileLog":
        """With the entries past its offset."""
        new = [(name, offset) for name, offset in entries if offset > self.offset]
        return FileLog(
            offset=max((offset for _, offset in new), default=self.offset),
            files=self.files + len(new),
            digest=(self.digest + sum(_hash(name) for name, _ in new)) % MODULUS,
            lost=self.lost,
        )


def check_file_log(lake: Lake, source: str) -> tuple[frozenset[str], list[Finding]]:
    """The files that no batch may take, and what was found; to be called before a run plans any."""
    query_id = read_query_id(lake, source)
    if query_id is None:
        return frozenset(), []  # the checkpoint is made by this run
    sealed = _read(lake, source, query_id)
    logged = list(read_file_log(lake, source, after=-1))
    if sealed is not None and _fits(sealed, logged):
        return sealed.lost, []
    found = taken_files(lake, source) - {name for name, _ in logged}
    before = frozenset() if sealed is None else sealed.lost
    _write(lake, source, query_id, FileLog(lost=before | found).plus(logged))
    return before | found, [_damaged(lake, source, found)] if found else []


def seal_file_log(lake: Lake, source: str) -> None:
    """Take what a batch has planned into the seal."""
    query_id = read_query_id(lake, source)
    if query_id is None:
        raise RuntimeError(f"{lake.ingest_checkpoint(source)} has no metadata file")
    known = _read(lake, source, query_id) or FileLog()
    _write(lake, source, query_id, known.plus(read_file_log(lake, source, after=known.offset)))


def taken_files(lake: Lake, source: str) -> set[str]:
    """The landed files that bronze or quarantine has rows of: one column of both is read."""
    names: set[str] = set()
    for path in (lake.bronze(source), lake.quarantine(source)):
        if lake.is_delta_table(path):
            for batch in dataset_of(path).to_batches(columns=["source_file"]):
                names.update(pc.unique(batch["source_file"]).to_pylist())
    return {name for name in names if name is not None and not REINGESTED.search(name)}


def _fits(sealed: FileLog, logged: list[tuple[str, int]]) -> bool:
    still = FileLog().plus(entry for entry in logged if entry[1] <= sealed.offset)
    return (still.files, still.digest) == (sealed.files, sealed.digest)


def _damaged(lake: Lake, source: str, lost: set[str]) -> Finding:
    names = ", ".join(sorted(lost)[:FILES_NAMED])
    return Finding(
        finding="file_log_damaged",
        severity="warning",
        count=len(lost),
        detail=f"{lake.ingest_checkpoint(source)}/sources/0 no longer has {len(lost)} files of which "
        f"bronze or quarantine has rows ({names}{', ...' if len(lost) > FILES_NAMED else ''}): as "
        "after a power cut. They are not taken again, and no row is there twice",
        action="nothing, for the rows; look at the disk, as other files may be damaged",
    )


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")


def _table(source: str) -> str:
    return f"checkpoints/ingest/{source}"


def _read(lake: Lake, source: str, query_id: str) -> FileLog | None:
    """What was sealed of this very checkpoint."""
    row = read_seal(lake, _table(source))
    if row is None or row["table_id"] != query_id:
        return None
    lost = frozenset(json.loads(row["mark"])["lost"])
    return FileLog(row["version"], row["rows"], int(row["files_hash"], 16), lost)


def _write(lake: Lake, source: str, query_id: str, log: FileLog) -> None:
    row = {
        "table": _table(source),
        "table_id": query_id,
        "version": log.offset,
        "rows_by_date": None,
        "rows": log.files,
        "files_hash": f"{log.digest:x}",
        "mark": json.dumps({"lost": sorted(log.lost)}),
        "recorded_at": datetime.now(UTC),
    }
    upsert_ops(lake, "tables", ("table",), row)
