"""The limit on memory: sized from the machine and the stream, between a floor and a ceiling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.care.rocksdb import memory_limit
from include.care.rocksdb.memory_limit import (
    FLOOR_MB,
    MACHINE_SHARE,
    PER_PARTITION_MB,
    machine_memory_bytes,
    memory_ceiling_mb,
    memory_limit_mb,
)
from include.settings import GIB, MIB

machines = st.integers(1, 4_096 * GIB)


@given(machines, st.integers(1, 10_000))
def test_the_limit_is_between_the_floor_and_the_machines_ceiling(machine, partitions):
    limit = memory_limit_mb(machine, partitions)
    assert FLOOR_MB <= limit <= memory_ceiling_mb(machine)
    assert limit in (FLOOR_MB, PER_PARTITION_MB * partitions, memory_ceiling_mb(machine))


@given(machines, st.integers(1, 1_000))
def test_more_partitions_or_a_larger_machine_never_mean_less(machine, partitions):
    limit = memory_limit_mb(machine, partitions)
    assert memory_limit_mb(machine, partitions + 1) >= limit
    assert memory_limit_mb(machine + GIB, partitions) >= limit


def test_each_of_the_three_bounds_can_be_the_one_that_counts():
    assert memory_limit_mb(16 * GIB, 4) == 4 * PER_PARTITION_MB
    assert memory_limit_mb(2 * GIB, 64) == 2 * 1024 // MACHINE_SHARE
    assert memory_limit_mb(256 * MIB, 64) == FLOOR_MB


def test_the_ceiling_is_reached_at_equality_and_not_before():
    machine = 4 * PER_PARTITION_MB * MACHINE_SHARE * MIB
    assert memory_limit_mb(machine, 4) == 4 * PER_PARTITION_MB
    assert memory_limit_mb(machine - 1, 4) == 4 * PER_PARTITION_MB - 1


@pytest.mark.parametrize(("machine", "partitions"), [(0, 4), (-1, 4), (GIB, 0), (GIB, -2)])
def test_no_machine_and_no_partition_are_refused(machine, partitions):
    with pytest.raises(ValueError, match="not"):
        memory_limit_mb(machine, partitions)


@pytest.mark.parametrize(
    ("limit", "expected"), [(f"{GIB}\n", GIB), ("max\n", None), (f"{10**18}\n", None)]
)
def test_a_container_is_as_large_as_its_limit(tmp_path, monkeypatch, limit, expected):
    monkeypatch.setattr(memory_limit, "CGROUP_LIMIT", tmp_path / "absent")
    physical = machine_memory_bytes()
    assert physical > GIB
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(memory_limit, "CGROUP_LIMIT", tmp_path / "memory.max")
    assert machine_memory_bytes() == (expected or physical)
