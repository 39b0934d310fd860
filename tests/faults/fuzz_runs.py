"""Files with changed bytes for minutes, a process a seed: one that dies is a result, too.

python -m tests.faults.fuzz_runs SEED    # 2,000 files
"""

import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import count

from hypothesis import HealthCheck, given, seed, settings

from include.settings import GIB, PROJECT
from tests.faults.fuzzing import MOST_MEMORY, changed_files, read_file
from tests.faults.trial import EQUAL, WRONG, Result

FILES_A_SEED = 2_000
# Of addresses, which a process with Arrow has many of; a bomb is to end it, and not the machine.
MOST_ADDRESSES = 4 * GIB


def run_for(minutes: float, done: Collection[str]) -> Iterator[Result]:
    """A result a seed, from the first on, but for those whose results are named."""
    ends = time.monotonic() + minutes * 60
    for number in count(1):
        if time.monotonic() >= ends:
            return
        if f"seed {number}" not in done:
            yield run_seed(number)


def run_seed(number: int) -> Result:
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.faults.fuzz_runs", str(number)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    ended = WRONG if done.returncode else EQUAL
    told = f"exit code {done.returncode}: {done.stderr[-3000:]}" if done.returncode else done.stdout
    seconds = round(time.monotonic() - began, 1)
    return Result(
        f"seed {number}", f"changed bytes, {FILES_A_SEED:,} files", ended, told.strip(), seconds
    )


def read_changed(number: int) -> Counter[str]:
    """The counts of a seed's files, by what became of them."""
    counts: Counter[str] = Counter()

    @seed(number)
    @settings(
        max_examples=FILES_A_SEED,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(changed_files())
    def read_one(changed: tuple[str, bytes]) -> None:
        read = read_file(*changed)
        assert read.peak_bytes < MOST_MEMORY, f"{read.peak_bytes} bytes of memory"
        counts["files"] += 1
        counts["with rows"] += read.accepted > 0
        counts["refused as a whole"] += read.is_refused_whole

    read_one()
    return counts


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    sys.stdout.write(f"{dict(read_changed(int(sys.argv[1])))}\n")
