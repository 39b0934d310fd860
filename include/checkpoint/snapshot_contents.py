"""Which SST and log files a snapshot needs, as its zip says.

A snapshot `<version>.zip` holds RocksDB's small files, and the names of the large ones, which
snapshots share. Spark leaves a snapshot that it cannot load for an older one, if change logs
lead on from there.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from include.lake.delta_log import is_of_machine
from include.lake.paths import Lake

METADATA = "metadata"
METADATA_VERSION = "v1"
# An object store answers a request in tens of milliseconds, however small the file.
READERS = 8
UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
NO_METADATA = (AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class SnapshotContents:
    """What a snapshot says it needs: bytes by file name. With a `fault`, nothing is known."""

    shared_files: Mapping[str, int]
    fault: str | None = None


def read_snapshots(
    lake: Lake, checkpoint: str, paths: Iterable[str]
) -> dict[str, SnapshotContents]:
    """The contents of the snapshots at `paths`, below `checkpoint`."""
    wanted = list(paths)
    with ThreadPoolExecutor(READERS) as readers:
        contents = readers.map(lambda path: _read(lake, f"{checkpoint}/{path}"), wanted)
        return dict(zip(wanted, contents, strict=True))


def _read(lake: Lake, path: str) -> SnapshotContents:
    try:
        with lake.filesystem.open_input_file(lake.path_in_filesystem(path)) as file:
            content = io.BytesIO(file.read())
        with zipfile.ZipFile(content) as archive:
            metadata = archive.read(METADATA)
    except FileNotFoundError:
        return SnapshotContents({}, "it vanished while the checkpoint was measured")
    except KeyError:
        return SnapshotContents({}, f"it has no entry {METADATA}")
    except UNREADABLE as error:
        if is_of_machine(error):
            raise
        return SnapshotContents({}, f"it cannot be read: {error or type(error).__name__}")
    return _parse(metadata)


def _parse(metadata: bytes) -> SnapshotContents:
    version, _, body = metadata.partition(b"\n")
    if version.decode(errors="replace") != METADATA_VERSION:
        return SnapshotContents({}, f"its {METADATA} is of version {version!r}, not v1")
    try:
        named = json.loads(body)
        files = {str(file["dfsSstFileName"]): int(file["sizeBytes"]) for file in named["sstFiles"]}
        for file in named.get("logFiles") or ():
            files[str(file["dfsLogFileName"])] = int(file["sizeBytes"])
    except NO_METADATA as error:
        return SnapshotContents({}, f"its {METADATA} is not what Spark writes: {error!r}")
    return SnapshotContents(files)
