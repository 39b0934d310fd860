"""Which partitions OPTIMIZE rewrites today: the worst first, as far as the budget goes."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import NamedTuple

from include.care.table_figures import Partition
from include.limits import TableCare


class Candidate(NamedTuple):
    """A partition with enough small files to join, and its table."""

    table: str
    partition: Partition


def candidates(table: str, partitions: Iterable[Partition], care: TableCare) -> list[Candidate]:
    """The partitions of a table that are worth rewriting."""
    return [
        Candidate(table, partition)
        for partition in partitions
        if partition.small_files >= care.min_small_files
    ]


def choose(
    found: Iterable[Candidate], care: TableCare, spent: Mapping[str, int], today: date
) -> list[Candidate]:
    """What to rewrite of what was `found` in all tables, `spent` bytes by table so far today.

    Dates that are over come first: what is rewritten of today is soon rewritten again. Then
    most small files first. One that does not fit leaves its place to smaller ones.
    """
    chosen = []
    spent = dict(spent)
    for candidate in sorted(found, key=lambda candidate: _turn(candidate, today)):
        table, cost = candidate.table, candidate.partition.small_bytes
        in_table, in_all = spent.get(table, 0) + cost, sum(spent.values()) + cost
        if in_table <= care.table_bytes and in_all <= care.day_bytes:
            chosen.append(candidate)
            spent[table] = in_table
    return chosen


def _turn(candidate: Candidate, today: date) -> tuple[bool, int, str, str]:
    partition = candidate.partition
    is_open = partition.date is not None and partition.date >= today
    # The names decide nothing, but the same lake has the same plan each time.
    return is_open, -partition.small_files, candidate.table, str(partition.value or "")
