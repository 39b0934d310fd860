"""Sequences that went wrong once, by name: what `make simulate` has found.

Each begins after some ordinary days (`Operations.some_days`), and each step is audited.
"""

from collections.abc import Callable

from tests.simulator.operations import Operations

Sequence = Callable[[Operations], None]
MADE = "spark_jobs.replay_bronze.replayed"  # the table is there, and has no rows
REPLACED = "spark_jobs.replay_bronze.replace_dead_letters"  # its savepoints are written
SWITCH = "tests.simulator.local_engine.LocalProduct.replace"  # ... and the dead letters replaced
BATCH_RECORDED = "spark_jobs.engines.live_batch.append_ops"  # a batch's rows are in the table


def days_in_time(do: Operations) -> None:
    """Three days without a late row, each with a savepoint that a reseed may begin with."""
    do.reseed(None)
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
    """Of a row in time, which is settled."""
    do.pass_time(wait)
    do.land_in_time(key, [1], value)
    do.pass_time(wait)
    do.clock_row()
    do.run(None)


def rewind_cut_off_then_other_buckets(do: Operations) -> None:
    days_in_time(do)
    with do.dying_before(SWITCH):
        do.rewind(None, ago=30)
    do.rescale(None, buckets=3)


def rewind_then_other_buckets(do: Operations) -> None:
    days_in_time(do)
    do.rewind(None, ago=30)
    do.rescale(None, buckets=3)


def rewind_then_late_rows_then_promote(do: Operations) -> None:
    days_in_time(do)
    do.rewind(None, ago=30)
    do.land_late("a", [40], 1)
    do.promote(None)
    do.run(None)


def lost_table_then_reseed_cut_off(do: Operations) -> None:
    do.lose("table")
    with do.dying_before(REPLACED):
        do.reseed(None)
    do.land_late("b", [25], 2)
    do.run(None)
    do.reseed(None)


def lost_table_then_a_run(do: Operations) -> None:
    do.lose("table")
    one_more_run(do)  # is refused
    do.reseed(None)


def table_made_anew_and_its_log_emptied(do: Operations) -> None:
    do.lose("table")
    with do.dying_before(MADE):
        do.reseed(None)
    do.power_cut()  # of the table's first commit
    do.backfill(ago=20, span=24, kill=None)  # is refused
    do.run(None)


def late_rows_unread_then_a_later_day_then_promote(do: Operations) -> None:
    days_in_time(do)
    do.land_late("a", [50, 30], 1)
    do.backfill(ago=20, span=24, kill=None)
    do.promote(None)


def late_rows_then_a_longer_delay_then_reseed(do: Operations) -> None:
    do.land_late("a", [0], 1)
    do.run(None)
    do.backfill(ago=3, span=3, kill=None)
    do.change_delay(600)
    do.land_in_time("b", [1], 1)
    do.run(None)  # is refused
    do.reseed(None)
    do.run(None)


def compaction_beside_a_reseed_that_was_cut_off(do: Operations) -> None:
    do.land_in_time("a", [3, 1], 1)
    do.pass_time(60)
    do.land_in_time("b", [1], 2)
    with do.dying_before(SWITCH):
        do.reseed(None)
    do.compact(None)
    do.run(None)


def a_day_by_other_code_then_the_old_code_again(do: Operations) -> None:
    do.deploy("b")
    do.backfill(ago=20, span=24, kill=None)
    do.deploy("a")
    do.land_in_time("a", [1], 1)
    do.run(None)
    do.reseed(None)


def mapped_states_then_a_row_from_before_the_mapping(do: Operations) -> None:
    do.reseed(None)
    do.pass_time(120)
    do.clock_row()
    do.run(None)
    do.migrate(None)
    do.land_late("a", [40], 3)
    do.run(None)
    do.promote(None)  # is refused: it would give the mapped states up
    do.recompute_all(None)


def older_table_then_compaction(do: Operations) -> None:
    days_in_time(do)
    do.back_up()
    do.land_in_time("a", [2], 1)
    do.pass_time(60)
    do.land_in_time("b", [2], 1)
    do.run(None)
    do.put_back("table")
    do.compact(None)  # is refused
    do.reseed(None)
    do.compact(None)


def older_table_from_before_a_reseed(do: Operations) -> None:
    days_in_time(do)
    do.back_up()
    do.land_late("a", [40], 1)
    do.reseed(None)
    do.put_back("table")
    do.run(None)  # is refused
    do.reseed(None)
    do.run(None)


def lost_ops_behind_a_cleaned_log(do: Operations) -> None:
    do.deploy("b")
    do.land_in_time("a", [1], 1)
    do.pass_time(60)
    do.land_in_time("a", [1], 1)
    do.run(None)
    do.deploy("a")
    do.lose("ops")
    do.clean_log("table")
    do.run(None)
    do.reseed(None)


def changed_event_then_compaction(do: Operations) -> None:
    do.deploy("c")  # asks for a field that the waiting events do not have
    do.compact(None)  # is refused, though there is nothing to fold
    do.deploy("a")
    do.compact(None)


def batch_cut_off_then_rewind(do: Operations) -> None:
    do.land_in_time("a", [2], 1)
    do.pass_time(60)
    do.land_in_time("b", [1], 1)
    with do.dying_before(BATCH_RECORDED):
        do.run(None)
    do.rewind(None, ago=6)
    do.run(None)


def clock_that_ran_ahead(do: Operations) -> None:
    do.land_far_ahead("a", 30)
    do.land_in_time("b", [1], 2)  # late, by that clock
    do.run(None)
    with do.dying_before(SWITCH):
        do.repair_clock(None, ago=5)
    do.repair_clock(None, ago=5)
    do.land_in_time("b", [0], 1)
    do.run(None)


def mapped_states_then_a_clock_set_back(do: Operations) -> None:
    do.backfill(ago=89, span=1, kill=None)
    do.land_in_time("a", [0], 0)
    do.land_far_ahead("a", 2)
    do.migrate(None)
    do.repair_clock(None, ago=240)  # this stream cannot be reseeded: the repair stays open
    do.land_in_time("a", [0], 0)  # in time by the clock of now, and behind the table


def first_batch_cut_off_then_a_cleaned_log(do: Operations) -> None:
    with do.dying_before(BATCH_RECORDED):
        do.run_other(None)  # is planned: a snapshot of bronze
    for _ in range(3):
        do.land_in_time("a", [0], 0)
    do.clean_log("bronze")
    do.run_other(None)  # plans it again, and no log knows that version any more
    do.reseed(None)


def savepoint_of_a_version_that_was_cleaned_up(do: Operations) -> None:
    one_more_run(do)  # of a version that no checkpoint of bronze sums up
    do.clock_row()
    do.clean_log("bronze")
    do.savepoint(None)  # is refused: what the stream has read can no longer be told
    do.run(None)
    do.savepoint(None)


def joined_files_behind_a_cleaned_log(do: Operations) -> None:
    one_more_run(do)
    do.optimize("bronze")  # nothing that a run would read
    do.clean_log("bronze")
    do.savepoint(None)
    do.compact(None)
    do.savepoint(None)


def bronze_that_others_changed_then_reseed(do: Operations) -> None:
    days_in_time(do)
    do.land_late("a", [40], 1)
    do.write_to_bronze("reseed", ago=5)  # is refused, and bronze put back
    one_more_run(do)
    do.reseed(None)


# A bug that there once was (see `planted.py`), and what brings it out.
FINDS: dict[str, Sequence] = {
    "L1": rewind_then_other_buckets,
    "L3": late_rows_unread_then_a_later_day_then_promote,
    "L4": late_rows_then_a_longer_delay_then_reseed,
    "L6": a_day_by_other_code_then_the_old_code_again,
    "L7": mapped_states_then_a_row_from_before_the_mapping,
    "L8": older_table_then_compaction,
}
SEQUENCES: tuple[Sequence, ...] = (
    rewind_cut_off_then_other_buckets,
    rewind_then_other_buckets,
    rewind_then_late_rows_then_promote,
    lost_table_then_reseed_cut_off,
    lost_table_then_a_run,
    table_made_anew_and_its_log_emptied,
    late_rows_unread_then_a_later_day_then_promote,
    late_rows_then_a_longer_delay_then_reseed,
    compaction_beside_a_reseed_that_was_cut_off,
    a_day_by_other_code_then_the_old_code_again,
    mapped_states_then_a_row_from_before_the_mapping,
    older_table_then_compaction,
    older_table_from_before_a_reseed,
    lost_ops_behind_a_cleaned_log,
    changed_event_then_compaction,
    batch_cut_off_then_rewind,
    clock_that_ran_ahead,
    mapped_states_then_a_clock_set_back,
    first_batch_cut_off_then_a_cleaned_log,
    savepoint_of_a_version_that_was_cleaned_up,
    joined_files_behind_a_cleaned_log,
    bronze_that_others_changed_then_reseed,
)
