"""Before which instant the rejected rows of a stream can stay when it is reseeded.

Each is emitted at its own instant, as the rows of an append table are, whatever the stream's table
is: a savepoint that was computed behind live's back, as a backfill's, has the state of all rows,
but what was rejected on the way to it is in no table.
"""

from include.coverage.judge import Coverage
from include.coverage.segments import BEGINNING_US, FOR_EVER_US
from include.coverage.table_coverage import rejected_coverage
from include.fold.instants import micros_of
from include.lake.generations import GenerationRow
from include.plans.open_stream import OpenStream
from include.plans.reseed_base import as_if_recorded
from include.savepoints.identity import StreamIdentity
from include.savepoints.lineage import is_mapped, rejects


def rejected_kept_us(opened: OpenStream, identity: StreamIdentity, is_unrecorded: bool) -> int:
    """The instant, in microseconds: FOR_EVER_US where the table says all that is to be known.

    `is_unrecorded`: nothing is known of the table from before there was a ledger, no worse.
    """
    lake = opened.lake
    if not rejects(identity.code) and not lake.is_delta_table(lake.rejected(opened.name)):
        return FOR_EVER_US
    kept_us = [_replaced_from_us(row) for row in _cut_off(opened)]
    if identity.output_mode == "update":
        coverage = rejected_coverage(lake, opened.row, opened.seen, identity)
        # As of the table of an append stream: the mapping cannot be made anew.
        spared = is_unrecorded and is_mapped(identity.code)
        kept_us.append(_right_until_us(as_if_recorded(coverage) if spared else coverage))
    return min(kept_us, default=FOR_EVER_US)


def _right_until_us(coverage: Coverage) -> int:
    if coverage.until_us is None:
        return BEGINNING_US
    wrong_us = coverage.first_wrong_us
    return coverage.until_us if wrong_us is None else wrong_us


def _cut_off(opened: OpenStream) -> list[GenerationRow]:
    """The reseeds that have replaced the table, and perhaps not yet the rejected rows."""
    made = {entry.generation for entry in opened.seen.entries if entry.kind == "reseed"}
    return [row for row in opened.generations.intents if row["generation"] in made]


def _replaced_from_us(intent: GenerationRow) -> int:
    return BEGINNING_US if intent["base_savepoint"] is None else micros_of(intent["base_until"])
