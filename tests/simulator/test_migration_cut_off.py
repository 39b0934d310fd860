"""A migration of the state that was cut off is carried on by whoever reseeds next."""

from collections.abc import Iterator

import pytest

from include.lake.generations import read_generations
from include.savepoints.manifest import is_mapped, same_code
from tests.simulator.operations import Operations
from tests.simulator.sequences import one_more_run, ordinary_days

CARRIED_OUT = "spark_jobs.reseed_stream._carry_out"


@pytest.fixture
def do() -> Iterator[Operations]:
    operations = Operations("counts")
    try:
        ordinary_days(operations, 2)  # without a late row
        yield operations
    finally:
        operations.close()


def migration_cut_off(do: Operations) -> str:
    """Before its table; the lineage of what it was to make."""
    do.reseed(None)
    do.pass_time(120)
    do.clock_row()
    do.run(None)
    with do.dying_before(CARRIED_OUT):
        do.migrate(None)
    begun = read_generations(do.world.lake, do.stream.name).intent
    assert begun is not None
    return str(begun["code"])


@pytest.mark.parametrize("after", ["repair", "reseed", "rescale"])
def test_a_migration_that_was_cut_off_is_carried_on_by_whoever_reseeds_next(do, after):
    lineage = migration_cut_off(do)
    if after == "repair":
        do.land_far_ahead("a", 30)  # and no run comes before the repair, and finishes it
        do.repair_clock(None, ago=5)
    elif after == "rescale":
        do.rescale(None, buckets=3)
    else:
        do.reseed(None)
    row = read_generations(do.world.lake, do.stream.name).current
    assert row["reseed"] == "migrate"
    assert is_mapped(row["code"])  # of an earlier savepoint, where the clock was set back before
    assert same_code(row["code"], lineage)
    one_more_run(do)
    do.auditor.check()


def test_a_migration_that_was_cut_off_is_given_up_where_that_is_asked_for(do):
    lineage = migration_cut_off(do)
    do.recompute_all(None)
    row = read_generations(do.world.lake, do.stream.name).current
    assert row["reseed"] == "recompute"
    assert not is_mapped(row["code"])
    assert same_code(row["code"], lineage)
