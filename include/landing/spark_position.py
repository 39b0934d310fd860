"""How far ingestion had come by release 0.5: Spark's checkpoint, `checkpoints/ingest/<source>`.

The first run of a later release takes it over (ingest_position.py). Spark knew files by its file log
alone, and where a line of that is lost (a power cut) it would have taken the file again. So each
batch of 0.5.x sealed the log in `ops/tables`: how many files, and a sum over the hashes of their
names. Only when that does not fit, or was never written, are bronze and quarantine read for the
names they have; those that the log lacks are *lost*, and are not taken.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

import pyarrow.compute as pc
from pyarrow import fs

from include.checkpoint.offsets import newest_committed, newest_planned, query_id
from include.lake.delta_log import is_of_machine
from include.lake.findings import Finding
from include.lake.how_to_mend import how_to_mend
from include.lake.paths import Lake, LakeError
from include.lake.read_tables import dataset_of
from include.lake.table_seal import read_seal
from include.landing.landed_files import landing_root
from include.landing.parse_files import REINGESTED_ROW
from include.text_table import counted

MODULUS = 2**256
FILES_NAMED = 5


def files_until(lake: Lake, source: str, batch: int) -> set[str]:
    """The files of all batches up to one."""
    last = _log_offset(lake, source, batch)
    return {name for name, offset in read_file_log(lake, source, after=-1) if offset <= last}


def read_planned_batch(lake: Lake, source: str, batch: int) -> tuple[tuple[str, ...], int]:
    """The files, and the time in microseconds, of a batch that the checkpoint has begun."""
    first = _log_offset(lake, source, batch - 1)
    last = _log_offset(lake, source, batch)
    entries = read_file_log(lake, source, after=first)
    files = tuple(sorted(name for name, offset in entries if first < offset <= last))
    metadata = json.loads(_lines(lake, _offset_path(lake, source, batch))[1])
    return files, int(metadata["batchTimestampMs"]) * 1000


def newest_batch(lake: Lake, source: str) -> int:
    """The newest batch that the ingest checkpoint has begun; -1 before the first."""
    planned = newest_planned(lake, lake.ingest_checkpoint(source))
    return -1 if planned is None else planned


def newest_committed_batch(lake: Lake, source: str) -> int:
    """The newest batch that the ingest checkpoint has committed; -1 before the first."""
    committed = newest_committed(lake, lake.ingest_checkpoint(source))
    return -1 if committed is None else committed


def read_query_id(lake: Lake, source: str) -> str | None:
    """The id that Spark gave the ingest checkpoint when it made it; None when there is none."""
    return query_id(lake, lake.ingest_checkpoint(source))


def read_file_log(lake: Lake, source: str, after: int) -> Iterator[tuple[str, int]]:
    """The files that the checkpoint knows, with the log offset at which each was found.

    Only those of log files past the offset `after` and of compacted ones. LakeError for a line
    that is cut off.
    """
    folder = lake.path_in_filesystem(lake.ingest_checkpoint(source)) + "/sources/0"
    root = landing_root(lake, source)
    for path in _log_files(lake, folder, after):
        for line in _lines(lake, path)[1:]:
            try:
                entry = json.loads(line)
                uri, offset = entry["path"], int(entry["batchId"])
            except (LookupError, TypeError, ValueError) as error:
                raise LakeError(_cut_off(path, error)) from error
            yield _name_below(root, uri), offset


def _cut_off(path: str, error: Exception) -> str:
    return (
        f"a line of {path} is cut off ({error!r}): put the ingest checkpoint back from a copy that "
        "is not older than bronze; or delete that line, and the file's .crc beside it: the next "
        "run finds out which files bronze and quarantine have, and takes none of them again"
    )


def _log_files(lake: Lake, folder: str, after: int) -> list[str]:
    """The log's files with offsets past `after`.

    The newest compacted one repeats all up to its own offset.
    """
    names = list(_names(lake, folder))
    compacted = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")]
    newest = max(compacted, default=-1)
    later = sorted(int(name) for name in names if name.isdigit() and int(name) > max(newest, after))
    first = [f"{folder}/{newest}.compact"] if newest > after else []
    return first + [f"{folder}/{offset}" for offset in later]


def _names(lake: Lake, folder: str) -> Iterator[str]:
    selector = fs.FileSelector(folder, allow_not_found=True)
    for info in lake.filesystem.get_file_info(selector):
        yield info.base_name


def _log_offset(lake: Lake, source: str, batch: int) -> int:
    """Where in the file log the batch ends; -1 before the first."""
    if batch < 0:
        return -1
    path = _offset_path(lake, source, batch)
    try:
        return int(json.loads(_lines(lake, path)[-1])["logOffset"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        if is_of_machine(error):
            raise
        raise LakeError(
            f"{path} is not the offset of a file stream ({error}): {how_to_mend(path)}"
        ) from error


def _offset_path(lake: Lake, source: str, batch: int) -> str:
    return lake.path_in_filesystem(lake.ingest_checkpoint(source)) + f"/offsets/{batch}"


def _lines(lake: Lake, path: str) -> list[str]:
    with lake.filesystem.open_input_file(path) as file:
        return [line for line in bytes(file.read()).decode().split("\n") if line]


def _name_below(root: str, uri: str) -> str:
    """The file's name below landing; LakeError when it is a file of another landing folder."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    # Without the bucket, with it, or with Azure's container, which stands before the account.
    for candidate in (path, parts.netloc + path, (parts.username or "") + path):
        if candidate.startswith(f"{root}/"):
            return candidate.removeprefix(f"{root}/")
    raise LakeError(
        f"the ingest checkpoint has taken {unquote(uri)}, which is not below {root}: a lake cannot "
        "be ingested into under another path, or it would take every file again. Move it back"
    )


# Files that the log has lost


def lost_files(lake: Lake, source: str) -> tuple[frozenset[str], list[Finding]]:
    """The files that the log lacks, though the tables have rows of them; and what to say of it."""
    made = read_query_id(lake, source)
    if made is None:
        return frozenset(), []
    logged = list(read_file_log(lake, source, after=-1))
    sealed = read_seal(lake, f"checkpoints/ingest/{source}")
    if sealed is None or sealed["table_id"] != made:
        found, before = taken_files(lake, source) - {name for name, _ in logged}, frozenset[str]()
    else:
        before = frozenset(json.loads(sealed["mark"])["lost"])
        fits = _fits(sealed["version"], sealed["rows"], int(sealed["files_hash"], 16), logged)
        found = set() if fits else taken_files(lake, source) - {name for name, _ in logged}
    return before | found, [_damaged(lake, source, found)] if found else []


def taken_files(lake: Lake, source: str) -> set[str]:
    """The landed files that bronze or quarantine has rows of: one column of both is read."""
    names: set[str] = set()
    for path in (lake.bronze(source), lake.quarantine(source)):
        if lake.is_delta_table(path):
            for batch in dataset_of(path).to_batches(columns=["source_file"]):
                names.update(pc.unique(batch["source_file"]).to_pylist())
    return {name for name in names if name is not None and not re.search(REINGESTED_ROW, name)}


def _fits(offset: int, files: int, digest: int, logged: Iterable[tuple[str, int]]) -> bool:
    names = [name for name, found_at in logged if found_at <= offset]
    return (len(names), sum(map(_hash, names)) % MODULUS) == (files, digest)


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")


def _damaged(lake: Lake, source: str, lost: set[str]) -> Finding:
    names = ", ".join(sorted(lost)[:FILES_NAMED])
    return Finding(
        finding="file_log_damaged",
        severity="warning",
        count=len(lost),
        detail=f"{lake.ingest_checkpoint(source)}/sources/0 no longer has {counted(len(lost), 'file')} of which "
        f"bronze or quarantine has rows ({names}{', ...' if len(lost) > FILES_NAMED else ''}): as "
        "after a power cut. They are not taken again, and no row is there twice",
        action="nothing, for the rows; look at the disk, as other files may be damaged",
    )
