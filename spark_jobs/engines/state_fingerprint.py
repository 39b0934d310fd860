"""A stream's state in three numbers each: to know that two checkpoints hold the same."""

from functools import partial
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.ddl import event_ddl
from include.fold.definition import KeyedFold
from spark_jobs.engines.checkpointed_states import read_states, read_waiting, readable
from spark_jobs.engines.packing import unpack
from spark_jobs.engines.state_rows import pending_events


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
    row = rows.agg(F.count(F.lit(1)), _checksum(rows)).collect()[0]
    return Fingerprint(int(row[0]), int(row[1]))


def _checksum(rows: DataFrame) -> Column:
    """An aggregate: the sum of the hashes of all rows; 0 without any."""
    # Spark hashes no map. Ours have their keys in order, so their text does as well.
    hashed = [
        F.to_json(F.struct(F.col(f"`{name}`"))) if "map<" in kind else F.col(f"`{name}`")
        for name, kind in rows.dtypes
    ]
    # A wide decimal: a sum of 64-bit hashes outgrows 64 bits.
    return F.coalesce(F.sum(F.xxhash64(*hashed).cast("decimal(38, 0)")), F.lit(0))
