"""What the bytes of a landed file are, whatever its name says; its text, unpacked and decoded."""

import codecs
import errno
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from pyarrow import fs

from include.lake.paths import Lake
from include.landing.landed_values import UnreadableFileError

GZIP = b"\x1f\x8b"
PARQUET, AVRO = "a Parquet file", "an Avro file"
MAGIC = {
    GZIP: "gzip",
    b"PAR1": PARQUET,
    b"Obj\x01": AVRO,
    b"\x28\xb5\x2f\xfd": "zstd, which is read within Parquet and Avro alone: pack it with gzip",
    b"BZh": "bzip2: pack it with gzip",
    b"\xfd7zXZ": "xz: pack it with gzip",
    b"PK\x03\x04": "a ZIP archive or an Excel workbook: land what is in it, as CSV",
    b"ORC": "an ORC file: write Parquet",
    codecs.BOM_UTF16_LE: "text in UTF-16: write UTF-8, or of a CSV declare its encoding",
    codecs.BOM_UTF16_BE: "text in UTF-16: write UTF-8, or of a CSV declare its encoding",
}


def what_it_is(content: bytes) -> str:
    """What a file begins as, for a message: "a Parquet file"."""
    known = next((found for magic, found in MAGIC.items() if content.startswith(magic)), None)
    if known is not None:
        return known
    begins = content.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if not begins:
        return "empty"
    return "JSON" if begins in (b"{", b"[") else "no format that is known by its first bytes"


def unpacked(name: str, content: bytes, max_bytes: int) -> bytes:
    """The content of the file `name` without gzip, which is known by its first bytes."""
    if content.startswith(GZIP):
        content = _gunzip(content, max_bytes)
        if content.startswith(GZIP):
            raise UnreadableFileError("gzip within gzip: pack it once")
    elif name.lower().endswith(".gz"):
        raise UnreadableFileError(
            f"no gzip file, though it is named .gz; it is {what_it_is(content)}: name it so"
        )
    return content


def _gunzip(content: bytes, max_bytes: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            found = file.read(max_bytes + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UnreadableFileError(f"not a whole gzip file: {error}") from None
    if len(found) > max_bytes:
        raise UnreadableFileError(f"unpacks to more than {max_bytes} bytes: split it")
    return found


def text_of(content: bytes, encoding: str = "utf-8") -> str:
    """The text, without a byte order mark; UnreadableFileError when it is not in the encoding."""
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    if is_utf8 and any(content.startswith(magic) for magic in MAGIC):
        raise UnreadableFileError(f"it is {what_it_is(content)}")
    try:
        text = content.decode("utf-8-sig" if is_utf8 else encoding)
    except UnicodeDecodeError as error:
        hint = '; of a CSV declare its encoding, such as csv=Csv(encoding="cp1252")'
        where = f"{error.reason} at byte {error.start}{hint if is_utf8 else ''}"
        raise UnreadableFileError(f"not {encoding.upper()}: {where}") from None
    if "\0" in text:
        raise UnreadableFileError("binary: it has NUL bytes")
    return text.removeprefix("\ufeff")


# A folder or file that may be there, and is not to be looked at: of one's own, or too deep.
CLOSED = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)


class LandedFile(NamedTuple):
    """A file as the listing has it. In this order files are taken: the older before the newer."""

    modified_ns: int
    name: str  # below landing/<source>
    bytes: int


def landed_files(lake: Lake, source: str) -> list[LandedFile]:
    """All but hidden ones, in the order in which they are taken."""
    root = landing_root(lake, source)
    return sorted(_listed_here(root) if is_local(lake) else _listed(lake, root))


def is_local(lake: Lake) -> bool:
    """Whether landing is a folder of the operating system, with links, pipes and any bytes in names."""
    return isinstance(lake.filesystem, fs.LocalFileSystem)


def _listed(lake: Lake, root: str) -> Iterator[LandedFile]:
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    for info in lake.filesystem.get_file_info(selector):
        name = info.path.removeprefix(f"{root}/")
        if info.type == fs.FileType.File and not any(map(_is_hidden, PurePosixPath(name).parts)):
            yield LandedFile(info.mtime_ns or 0, name, info.size)


def _listed_here(root: str) -> Iterator[LandedFile]:
    """Links to folders are not followed: they may lead anywhere, and around."""
    folders = [""]  # and not by recursion: there may be thousands within each other
    while folders:
        below = folders.pop()
        try:
            with os.scandir(f"{root}/{below}") as found:
                entries = [entry for entry in found if not _is_hidden(entry.name)]
        except FileNotFoundError:
            continue  # removed meanwhile, or nothing has ever landed
        except OSError as error:
            if not below or error.errno not in CLOSED:
                raise
            yield LandedFile(0, below, 0)
            continue
        for entry in entries:
            name = _storable(f"{below}{entry.name}")
            if entry.is_dir(follow_symlinks=False) and not name.endswith("/"):
                folders.append(f"{name}/")
            elif file := _file_here(entry, name):
                yield file


def _file_here(entry: os.DirEntry[str], name: str) -> LandedFile | None:
    """None of a pipe, a socket, a device, and a link to nothing."""
    try:
        found = entry.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in CLOSED:
            raise
        return LandedFile(0, _not_taken(name), 0)
    if stat.S_ISDIR(found.st_mode):
        return LandedFile(0, _not_taken(name), 0)
    return (
        LandedFile(found.st_mtime_ns, name, found.st_size) if stat.S_ISREG(found.st_mode) else None
    )


def _storable(name: str) -> str:
    """The name, or if it is not UTF-8 one with \\x.. for each other byte, and `/`."""
    try:
        name.encode()
    except UnicodeEncodeError:
        whole = os.fsencode(name.replace("\\", "\\\\"))
        return _not_taken(whole.decode("utf-8", "backslashreplace"))
    return name


def _not_taken(name: str) -> str:
    return name if name.endswith("/") else f"{name}/"


def _is_hidden(name: str) -> bool:
    # The rule of Hadoop's listing, with its exceptions.
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    under_score = name.startswith("_") and "=" not in name
    return under_score or name.startswith(".") or name.endswith("._COPYING_")


def landing_root(lake: Lake, source: str) -> str:
    """The landing folder as the lake's file system spells it, absolute."""
    root = lake.path_in_filesystem(lake.landing(source))
    return os.path.abspath(root) if is_local(lake) else root  # noqa: PTH100 (no symlinks)
