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

from include.lake import Lake, LakeError


@dataclass(frozen=True)
class FileLog:
    """What the ingest checkpoint knows of landing: file URIs, by whether they are committed."""

    taken: frozenset[str]
    planned: frozenset[str]


def files_waiting(lake: Lake, source: str) -> int:
    """The number of landed files that no committed batch has taken; 0: nothing to ingest.

    Files of a batch that was begun and not committed are still waiting.
    """
    log = read_file_log(lake, source)
    root = landing_root(lake, source)
    taken = {_name_below(root, uri) for uri in log.taken}
    planned = {_name_below(root, uri) for uri in log.planned}
    return len((set(landed_files(lake, source)) | planned) - taken)


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


def read_file_log(lake: Lake, source: str) -> FileLog:
    """The files in the ingest checkpoint; none when there is no checkpoint."""
    folder = lake.path_in_filesystem(lake.ingest_checkpoint(source))
    committed = newest_committed_batch(lake, source)
    last_taken = -1 if committed < 0 else _log_offset(lake, f"{folder}/offsets/{committed}")
    taken: set[str] = set()
    planned: set[str] = set()
    for path in _log_files(lake, f"{folder}/sources/0"):
        for line in _lines(lake, path)[1:]:
            entry = json.loads(line)
            (taken if entry["batchId"] <= last_taken else planned).add(entry["path"])
    return FileLog(frozenset(taken), frozenset(planned))


def newest_batch(lake: Lake, source: str) -> int:
    """The newest batch that the ingest checkpoint has begun; -1 before the first."""
    folder = lake.path_in_filesystem(lake.ingest_checkpoint(source))
    return max(_batches(lake, f"{folder}/offsets"), default=-1)


def newest_committed_batch(lake: Lake, source: str) -> int:
    """The newest batch that the ingest checkpoint has committed; -1 before the first."""
    folder = lake.path_in_filesystem(lake.ingest_checkpoint(source))
    return max(_batches(lake, f"{folder}/commits"), default=-1)


def _log_files(lake: Lake, folder: str) -> list[str]:
    """The newest compacted file, which has all entries up to its number, and those after it."""
    names = list(_names(lake, folder))
    compacted = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")]
    newest = max(compacted, default=-1)
    later = sorted(int(name) for name in names if name.isdigit() and int(name) > newest)
    first = [f"{folder}/{newest}.compact"] if compacted else []
    return first + [f"{folder}/{batch}" for batch in later]


def _batches(lake: Lake, folder: str) -> list[int]:
    return [int(name) for name in _names(lake, folder) if name.isdigit()]


def _names(lake: Lake, folder: str) -> Iterator[str]:
    selector = fs.FileSelector(folder, allow_not_found=True)
    for info in lake.filesystem.get_file_info(selector):
        yield info.base_name


def _log_offset(lake: Lake, path: str) -> int:
    try:
        return int(json.loads(_lines(lake, path)[-1])["logOffset"])
    except (OSError, ValueError, LookupError) as error:
        raise LakeError(
            f"{path} is not the offset of a file stream ({error}): "
            "put the ingest checkpoint back from a copy"
        ) from error


def _lines(lake: Lake, path: str) -> list[str]:
    with lake.filesystem.open_input_file(path) as file:
        return [line for line in bytes(file.read()).decode().split("\n") if line]


def _name_below(root: str, uri: str) -> str:
    """The file's name below landing; LakeError when it is a file of another landing folder."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    for candidate in (path, parts.netloc + path):  # with the bucket, or without
        if candidate.startswith(f"{root}/"):
            return candidate.removeprefix(f"{root}/")
    raise LakeError(
        f"the ingest checkpoint has taken {unquote(uri)}, which is not below {root}: a lake cannot "
        "be ingested into under another path, or it would take every file again. Move it back"
    )
