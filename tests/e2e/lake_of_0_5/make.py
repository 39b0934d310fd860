"""Makes `lake.tar.xz`, a lake as release 0.5 leaves it: five streams, late rows that nobody recomputed, a savepoint.

    git worktree add /tmp/r05 7049758          # the last commit of 0.5
    ln -s $PWD/.venv $PWD/.jars /tmp/r05       # its packages are those of today
    cd /tmp/r05 && .venv/bin/python <this file> <an empty folder> <the archive>

Run by 0.5's own code, in its folder: what is imported below is not of this release.
"""

import sys
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, ".")

from include.local_jobs import run_job
from include.sample_data import Options, generate

from include.lake import Lake
from include.streams import SOURCES, STREAMS

START = datetime(2026, 3, 1, tzinfo=UTC)


def land(lake: Lake, part: str, start: datetime, seed: int) -> None:
    """Three hours of events of each source, in files of their own name."""
    staging = Lake(f"{lake.root}-{part}")
    for source in SOURCES:
        options = Options(start=start, seed=seed, keys=3, events=600, span_hours=3, late_share=0)
        generate(staging, source, options)
        folder = Path(lake.landing(source.name))
        folder.mkdir(parents=True, exist_ok=True)
        for file in Path(staging.landing(source.name)).iterdir():
            file.rename(folder / f"{part}-{file.name}")


def run(lake: Lake, until: datetime) -> None:
    """Ingest all sources and drain all streams, as at `until`."""
    for source in SOURCES:
        end = ["--interval-end", until.isoformat()]
        assert run_job("ingest_source", ["--source", source.name, "--lake", lake.root, *end]) == 0
    for stream in STREAMS:
        assert run_job("run_stream", ["--stream", stream.name, "--lake", lake.root], stream) == 0


def main(folder: str, archive: str) -> None:
    """Three landings and a run after each; the last begins before the second ends: late rows."""
    lake = Lake(str(Path(folder, "lake")))
    Path(lake.root).mkdir()
    land(lake, "a", START, seed=1)
    run(lake, START + timedelta(hours=3))
    counts = next(stream for stream in STREAMS if stream.name == "user_counts")
    assert run_job("write_savepoint", ["--stream", counts.name, "--lake", lake.root], counts) == 0
    land(lake, "b", START + timedelta(hours=3), seed=2)
    run(lake, START + timedelta(hours=6))
    land(lake, "c", START + timedelta(hours=5), seed=3)
    run(lake, START + timedelta(hours=8))
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(lake.root, "lake")


if __name__ == "__main__":
    main(*sys.argv[1:])
