"""What the bytes of a landed file are, whatever its name says; its text, unpacked and decoded."""

import codecs
import gzip
import io
import zlib

from include.landing.refusals import UnreadableFileError

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
    is_named_so = name.lower().endswith(".gz")
    if content.startswith(GZIP):
        content = _gunzip(content, max_bytes)
        if content.startswith(GZIP):
            raise UnreadableFileError("gzip within gzip: pack it once")
    elif is_named_so:
        told = "empty, not even a gzip header" if not content else _not_gzip(content)
        raise UnreadableFileError(told)
    return content


def _not_gzip(content: bytes) -> str:
    return f"no gzip file, though it is named .gz; it is {what_it_is(content)}: name it so"


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
        where = f"{error.reason} at byte {error.start}"
        raise UnreadableFileError(f"not {encoding.upper()}: {where}{_hint(is_utf8)}") from None
    if "\0" in text:
        raise UnreadableFileError("binary: it has NUL bytes")
    return text.removeprefix("\ufeff")


def _hint(is_utf8: bool) -> str:
    return '; of a CSV declare its encoding, such as csv=Csv(encoding="cp1252")' if is_utf8 else ""
