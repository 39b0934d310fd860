"""A stream's state in three numbers each: to know that two checkpoints hold the same."""

from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.ddl import event_ddl
from include.fold.definition import KeyedFold
from spark_jobs.engines.checkpointed_states import read_states, read_waiting, readable
from spark_jobs.engines.packing import unpack
from spark_jobs.engines.state_rows import pending_events
from spark_jobs.tables.rejected import row_checksum


class Fingerprint(NamedTuple):
    """How many rows, and the sum of their hashes: equal whatever the order of the rows."""

    rows: int
    checksum: int


class StateFingerprint(NamedTuple):
    """All that a bucket will go on from. (How far it is folded is in its states and events.)"""

    states: Fingerprint  # of state_rows_ddl
    pending: Fingerprint  # the events that wait
    timers: Fingerprint


def fingerprint_state(session: SparkSession, checkpoint: str, fold: KeyedFold) -> StateFingerprint:
    """The fingerprint of the state in `checkpoint` after its last batch."""
    states = read_states(session, checkpoint, fold)
    waiting = read_waiting(session, checkpoint)
    reader = session.read.format("statestore").option("readRegisteredTimers", "true")
    return StateFingerprint(
        _fingerprint(states),
        _fingerprint(unpack(waiting, "events", event_ddl(fold), partial(pending_events, fold))),
        _fingerprint(reader.load(readable(checkpoint))),
    )


def _fingerprint(rows: DataFrame) -> Fingerprint:
    row = rows.agg(F.count(F.lit(1)), row_checksum(rows, *rows.columns)).collect()[0]
    return Fingerprint(int(row[0]), int(row[1]))
