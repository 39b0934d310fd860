"""The files of a checkpoint, held against the checksums that Hadoop keeps beside them on a local disk.

Of a file without one, as on an object store, nothing is known. (Format: `DataChecksum` of Hadoop,
four bytes `crc` and the type 0, the bytes of a chunk, and the CRC-32 of each chunk.)
"""

from zlib import crc32

from include.checkpoint.checkpoint_files import list_checkpoint
from include.lake.paths import Lake

MAGIC = b"crc\0"
HEADER_BYTES = 8


def unlike_their_checksums(lake: Lake, checkpoint: str) -> list[str]:
    """Those whose bytes are not what was written, by their paths below `checkpoint`. Reads them all."""
    files = list_checkpoint(lake, checkpoint)
    checksums = {file.owner: file.path for file in files if file.is_checksum}
    there = sorted(checksums.keys() & {file.path for file in files})
    return [path for path in there if not _fits(lake, checkpoint, path, checksums[path])]


def _fits(lake: Lake, checkpoint: str, path: str, checksum: str) -> bool:
    try:
        content, sums = (_read(lake, f"{checkpoint}/{name}") for name in (path, checksum))
    except FileNotFoundError:  # since it was listed
        return True
    chunk = int.from_bytes(sums[len(MAGIC) : HEADER_BYTES])
    if not sums.startswith(MAGIC) or not chunk:
        return False
    parts = (content[at : at + chunk] for at in range(0, len(content), chunk))
    return sums[HEADER_BYTES:] == b"".join(crc32(part).to_bytes(4) for part in parts)


def _read(lake: Lake, path: str) -> bytes:
    with lake.filesystem.open_input_stream(lake.path_in_filesystem(path)) as file:
        return bytes(file.read())
