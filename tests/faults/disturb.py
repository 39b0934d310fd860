"""Disturbances of a job while it works: killed or stopped at a write, failed by its machine."""

import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

from tests.faults.command_line import CommandLine, Report
from tests.faults.lakes import Story
from tests.simulator.replaced import set_clock
from tests.simulator.writes import Killed, killing

# How long whoever comes second waits for the first.
PATIENCES = (
    "include.ingest.ingest.COMPACTION_PATIENCE",
    "spark_jobs.run_stream.INGEST_PATIENCE",
    "spark_jobs.rebuild_stream.PATIENCE",
    "spark_jobs.restate_interval.PATIENCE",
    "spark_jobs.write_savepoint.PATIENCE",
    "spark_jobs.compact_state.INGEST_PATIENCE",
)


class Disturbed(Protocol):
    """A row of the matrix that harms no file."""

    @property
    def fault(self) -> str: ...

    @property
    def place(self) -> str: ...


def disturb(row: Disturbed, story: Story, commands: CommandLine, command: str) -> Report | None:
    """Run the command under it: what it said, or None if it never came to that. Whatever was
    disturbed is as before then."""
    if row.fault == "killed":
        with killing(_number(row.place)) as writes, suppress(Killed):
            commands.stateful(story.lake.root, command)
        return Report(0, "") if writes.killed else None
    if row.fault == "two drivers":
        return _two_drivers(story, commands, command, _number(row.place))
    if row.fault in NEED_MOUNT and not can_mount():
        return None
    with DISTURBANCES[row.fault](story.root):
        return commands.stateful(story.lake.root, command)


@cache
def can_mount() -> bool:
    """True if this process may make file systems, as few but root in a machine of its own may."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "tmpfs", folder]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def _number(place: str) -> int:
    return int(place.removeprefix("write "))


def _two_drivers(story: Story, commands: CommandLine, command: str, before: int) -> Report | None:
    """One stands still before a write, as under SIGSTOP; another begins, and is to be refused or to
    do all; then the first goes on."""
    done: list[int] = []

    def other() -> None:
        with pytest.MonkeyPatch.context() as patch:
            for patience in PATIENCES:
                patch.setattr(patience, timedelta(0))
            done.append(commands.stateful(story.lake.root, f"stream {story.stream.name}").code)

    with killing(before, meanwhile=other):
        told = commands.stateful(story.lake.root, command)
    return told if done else None


@contextmanager
def _small_disk(root: Path, options: str) -> Iterator[None]:
    """The lake on a file system of its own, as it stands."""
    retained = root.with_name("kept")
    root.rename(retained)
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(root)], check=True)
    try:
        shutil.copytree(retained, root, dirs_exist_ok=True)
        used = sum(file.stat().st_blocks * 512 for file in root.rglob("*"))
        told = options.format(size=used + 32 * 1024)
        subprocess.run(["mount", "-o", f"remount,{told}", str(root)], check=True)
        yield
    finally:
        shutil.rmtree(retained)
        shutil.copytree(root, retained)
        subprocess.run(["umount", "--lazy", str(root)], check=True)
        root.rmdir()
        retained.rename(root)


@contextmanager
def _few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def _other_time(days: int) -> Iterator[None]:
    def now() -> datetime:
        return datetime.now(UTC) + timedelta(days=days)

    with pytest.MonkeyPatch.context() as patch:
        set_clock(patch, now)
        yield


DISTURBANCES: dict[str, Callable[[Path], AbstractContextManager[None]]] = {
    "disk full": lambda root: _small_disk(root, "size={size}"),
    "read-only": lambda root: _small_disk(root, "ro"),
    "file descriptors": lambda root: _few_descriptors(),
    "clock +400 days": lambda root: _other_time(400),
    "clock -400 days": lambda root: _other_time(-400),
}
NEED_MOUNT = {"disk full", "read-only"}
