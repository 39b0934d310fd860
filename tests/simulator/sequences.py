"""Sequences that went wrong once, by name: the deepest of what `make simulate` has found.

Each begins after some ordinary days (`Operations.some_days`), and each step is audited.
"""

from collections.abc import Callable

from tests.simulator.operations import Operations

Sequence = Callable[[Operations], None]
BATCH_WRITTEN = "spark_jobs.engines.live_batch.BatchWriter._note"  # a batch's rows are in the table


def days_in_time(do: Operations) -> None:
    """Three days without a late row, each with a savepoint that a rebuild may begin with."""
    do.rebuild(None)
    ordinary_days(do, 3)


def ordinary_days(do: Operations, days: int) -> None:
    """Rows in time, and a run a day."""
    for _ in range(days):
        for minutes in (480, 960):
            do.pass_time(minutes)
            do.land_in_time("a", [3, 1], 1)
            do.land_in_time("b", [2], 2)
        do.run(None)


def one_more_run(do: Operations, key: str = "a", value: int = 1, wait: int = 30) -> None:
    """A run with a row in time, which is complete."""
    do.pass_time(wait)
    do.land_in_time(key, [1], value)
    do.pass_time(wait)
    do.heartbeat()
    do.run(None)


def rewind_then_other_buckets(do: Operations) -> None:
    days_in_time(do)
    do.rewind(None, ago=30)
    do.rescale(None, buckets=3)


def late_rows_unread_then_a_later_day_then_rebuild(do: Operations) -> None:
    days_in_time(do)
    do.land_late("a", [50, 30], 1)
    do.backfill(ago=20, span=24, kill=None)
    do.rebuild_after_backfill(None)


def late_rows_then_a_longer_delay_then_rebuild(do: Operations) -> None:
    do.land_late("a", [0], 1)
    do.run(None)
    do.backfill(ago=3, span=3, kill=None)
    do.change_delay(600)
    do.land_in_time("b", [1], 1)
    do.run(None)  # is refused
    do.rebuild(None)
    do.run(None)


def a_day_by_other_code_then_the_old_code_again(do: Operations) -> None:
    do.deploy("b")
    do.backfill(ago=20, span=24, kill=None)
    do.deploy("a")
    do.land_in_time("a", [1], 1)
    do.run(None)
    do.rebuild(None)


def mapped_states_then_a_row_from_before_the_mapping(do: Operations) -> None:
    do.rebuild(None)
    do.pass_time(120)
    do.heartbeat()
    do.run(None)
    do.migrate(None)
    do.land_late("a", [40], 3)
    do.run(None)
    do.rebuild_after_backfill(None)  # is refused: it would give the mapped states up
    do.full_refresh(None)


def older_table_then_compaction(do: Operations) -> None:
    days_in_time(do)
    do.back_up()
    do.land_in_time("a", [2], 1)
    do.pass_time(60)
    do.land_in_time("b", [2], 1)
    do.run(None)
    do.put_back("table")
    do.compact(None)  # is refused
    do.rebuild(None)
    do.compact(None)


def mapped_states_then_a_clock_set_back(do: Operations) -> None:
    do.backfill(ago=89, span=1, kill=None)
    do.land_in_time("a", [0], 0)
    do.land_far_ahead("a", 2)
    do.migrate(None)
    do.set_watermark(None, ago=240)  # this stream cannot be rebuilt: the repair stays open
    do.land_in_time("a", [0], 0)  # in time by the clock of now, and behind the table


def first_batch_cut_off_then_a_cleaned_log(do: Operations) -> None:
    with do.dying_before(BATCH_WRITTEN):
        do.run_other(None)  # is planned: a snapshot of bronze
    for _ in range(3):
        do.land_in_time("a", [0], 0)
    do.clean_log("bronze")
    do.run_other(None)  # plans it again, and no log knows that version any more
    do.rebuild(None)


def all_that_a_key_may_have(do: Operations) -> None:
    """For a shape with timers, duplicates and a ttl, in a source of groups."""
    for edge in range(4):
        for around in (-1, 0, 1):
            do.land_on_edge("a", 2, edge, around)
    do.land_tied("a", [3, 1, 2])
    do.pass_time(2000)
    do.land_in_time("b", [3, 1], 1)
    do.run(None)
    do.deploy("c")
    do.rebuild(None)
    do.land_of_one("a", 4)
    do.land_far_ahead("a", 30)
    do.run(None)
    do.set_watermark(None, ago=30)
    do.land_in_time("b", [1], 1)
    do.run(None)


# A bug of `planted.py`, and what brings it out.
FINDS: dict[str, Sequence] = {
    "L1": rewind_then_other_buckets,
    "L3": late_rows_unread_then_a_later_day_then_rebuild,
    "L4": late_rows_then_a_longer_delay_then_rebuild,
    "L6": a_day_by_other_code_then_the_old_code_again,
    "L7": mapped_states_then_a_row_from_before_the_mapping,
    "L8": older_table_then_compaction,
}
SEQUENCES: tuple[Sequence, ...] = (
    *FINDS.values(),
    mapped_states_then_a_clock_set_back,
    first_batch_cut_off_then_a_cleaned_log,
)
