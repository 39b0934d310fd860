"""How much memory the state stores of one process may take, by the machine and the stream.

Spark's limit is for the process (an executor; in local mode the driver), for all its stores
together. It is a limit, not a reservation: a store takes what it needs.
"""

from pathlib import Path

import psutil

from include.settings import MIB

PER_PARTITION_MB = 64
FLOOR_MB = 64
# Two jobs may run at once, each with a heap and with Python workers beside it.
MACHINE_SHARE = 8
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_limit_mb(machine_bytes: int, partitions: int) -> int:
    """The limit for a stream with so many state partitions, in MiB; ValueError below 1."""
    if partitions < 1:
        raise ValueError(f"state partitions must be at least 1, not {partitions}")
    return max(FLOOR_MB, min(PER_PARTITION_MB * partitions, memory_ceiling_mb(machine_bytes)))


def memory_ceiling_mb(machine_bytes: int) -> int:
    """The most that a machine with so much memory can spare, in MiB; ValueError below 1 byte."""
    if machine_bytes < 1:
        raise ValueError(f"a machine must have memory, not {machine_bytes} bytes")
    return max(FLOOR_MB, machine_bytes // MIB // MACHINE_SHARE)


def machine_memory_bytes() -> int:
    """The memory of this machine, or of the container that this process is in."""
    physical = int(psutil.virtual_memory().total)
    try:
        limit = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return physical  # no container, or another system
    return min(physical, int(limit)) if limit.isdigit() else physical
