"""Harms to a file, or to a folder, of a lake."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

Harm = Callable[[Path, Path], None]


def deleted(path: Path, older: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def emptied(path: Path, older: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path, older: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flipped(path: Path, older: Path) -> None:
    """Flip all bits of the middle half."""
    content = path.read_bytes()
    quarter = len(content) // 4
    middle = bytes(byte ^ 0xFF for byte in content[quarter:-quarter])
    path.write_bytes(content[:quarter] + middle + content[-quarter:])


def one_bit_flipped(path: Path, older: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def restored_older(path: Path, older: Path) -> None:
    """Put back what was there two runs before; delete a file that was not there yet."""
    if path.is_dir():
        shutil.rmtree(path)
        if older.is_dir():
            shutil.copytree(older, path)
    elif older.exists():
        shutil.copyfile(older, path)
    else:
        path.unlink()


OF_FILES: Mapping[str, Harm] = {
    "deleted": deleted,
    "emptied": emptied,
    "truncated": truncated,
    "flipped": flipped,
    "one bit flipped": one_bit_flipped,
    "older": restored_older,
}
OF_FOLDERS: Mapping[str, Harm] = {"deleted": deleted, "older": restored_older}


def harm(name: str, path: Path, older: Path) -> None:
    """Do it. Checksums of Hadoop's are beside a file, and lost with it where a disk is."""
    OF_FILES[name](path, older)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
