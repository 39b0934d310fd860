"""How far ingestion has come in a source's landing folder, read without a JVM.

Spark knows a file by its name alone: one that is changed after it was taken is not
taken again. Producers write under a hidden name (`_x`, `.x`) and rename when done.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from include.checkpoint.offsets import newest_committed, newest_planned
from include.lake.paths import Lake, LakeError


@dataclass(frozen=True)
class PlannedBatch:
    """What the checkpoint keeps of one batch: the same each time that it is repeated."""

    files: tuple[str, ...]  # below landing/<source>
    ingested_at_us: int


def files_waiting(lake: Lake, source: str) -> int:
    """The number of landed files that no committed batch has taken; 0: nothing to ingest.

    Files of a batch that was begun and not committed are still waiting.
    """
    last_taken = _log_offset(lake, source, newest_committed_batch(lake, source))
    taken: set[str] = set()
    planned: set[str] = set()
    for name, offset in read_file_log(lake, source, after=-1):
        (taken if offset <= last_taken else planned).add(name)
    return len((planned | set(landed_files(lake, source))) - taken)


def read_planned_batch(lake: Lake, source: str, batch: int) -> PlannedBatch:
    """The files and the time of a batch that the ingest checkpoint has begun."""
    first = _log_offset(lake, source, batch - 1)
    last = _log_offset(lake, source, batch)
    entries = read_file_log(lake, source, after=first)
    files = tuple(sorted(name for name, offset in entries if first < offset <= last))
    metadata = json.loads(_lines(lake, _offset_path(lake, source, batch))[1])
    return PlannedBatch(files, int(metadata["batchTimestampMs"]) * 1000)


def landed_files(lake: Lake, source: str) -> Iterator[str]:
    """The names below landing/<source> that Spark would see: all but hidden ones."""
    root = landing_root(lake, source)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    for info in lake.filesystem.get_file_info(selector):
        name = info.path.removeprefix(f"{root}/")
        if info.type == fs.FileType.File and not any(map(_is_hidden, PurePosixPath(name).parts)):
            yield name


def _is_hidden(name: str) -> bool:
    # The rule of Spark's file listing, with its exceptions.
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    under_score = name.startswith("_") and "=" not in name
    return under_score or name.startswith(".") or name.endswith("._COPYING_")


def landing_root(lake: Lake, source: str) -> str:
    """The landing folder as the lake's file system spells it, absolute."""
    root = lake.path_in_filesystem(lake.landing(source))
    return os.path.abspath(root) if isinstance(lake.filesystem, fs.LocalFileSystem) else root  # noqa: PTH100 (no symlinks)


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
    folder = lake.path_in_filesystem(lake.ingest_checkpoint(source))
    try:
        with lake.filesystem.open_input_file(f"{folder}/metadata") as file:
            return str(json.loads(file.read())["id"])
    except FileNotFoundError:
        return None


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
        raise LakeError(
            f"{path} is not the offset of a file stream ({error}): "
            "put the ingest checkpoint back from a copy"
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
