"""Checksums as Hadoop has written them: those of a checkpoint that Spark left on a local disk."""

import tarfile
from pathlib import Path

import pytest

from include.checkpoint.checkpoint_files import unlike_their_checksums
from include.lake.paths import Lake, open_lake

ARCHIVE = Path(__file__).parent / "of_hadoop.tar.xz"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> tuple[Lake, list[Path]]:
    folder = tmp_path_factory.mktemp("of_hadoop")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    (found,) = folder.rglob("checkpoints")
    return open_lake(str(found.parent)), [path.parent for path in found.rglob("offsets")]


def with_checksums(checkpoint: Path) -> list[Path]:
    """Of each kind one, whatever is in it."""
    beside = (path.with_name(path.name[1:-4]) for path in checkpoint.rglob(".*.crc"))
    there = sorted(path for path in beside if path.exists() and path.stat().st_size)
    return list({(path.parts[-2], path.suffix): path for path in there}.values())


def test_what_nobody_has_touched_fits(checkpoints):
    lake, folders = checkpoints
    assert folders
    for folder in folders:
        assert with_checksums(folder)
        assert unlike_their_checksums(lake, str(folder)) == []


def cut(content: bytes) -> bytes:
    return content[:-1]


def emptied(content: bytes) -> bytes:
    return b""


def longer(content: bytes) -> bytes:
    return content + b"\0"


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("harmed", [cut, emptied, longer, flipped])
@pytest.mark.parametrize("of", [".{}.crc", "{}"])
def test_one_that_is_harmed_is_named_alone(checkpoints, harmed, of):
    lake, folders = checkpoints
    for folder in folders:
        for path in with_checksums(folder):
            file = path.with_name(of.format(path.name))
            content = file.read_bytes()
            file.write_bytes(harmed(content))
            assert unlike_their_checksums(lake, str(folder)) == [str(path.relative_to(folder))]
            file.write_bytes(content)


def test_of_one_that_has_no_checksum_nothing_is_said(checkpoints):
    lake, (folder, *_) = checkpoints
    path, *_ = with_checksums(folder)
    checksum = path.with_name(f".{path.name}.crc")
    content = path.read_bytes(), checksum.read_bytes()
    checksum.unlink()
    path.write_bytes(b"another")
    assert unlike_their_checksums(lake, str(folder)) == []
    path.write_bytes(content[0])
    checksum.write_bytes(content[1])
