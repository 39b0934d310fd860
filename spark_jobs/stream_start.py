"""How a stream's first run begins: with nothing, or with the initial state that a user gives."""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from include.checkpoint import newest_committed, newest_planned
from include.lake import Lake, LakeError
from include.ops import read_ops
from spark_jobs.engines.live import Seed
from spark_jobs.engines.state_rows import project_states
from spark_jobs.fold.admission import EPOCH, MICROSECOND
from spark_jobs.fold.definition import KeyedFold
from spark_jobs.lake.initial_state import read_fingerprint, read_initial_state
from spark_jobs.lake.tables import ProductTable


@dataclass(frozen=True)
class Start:
    """What a run of a stream stands on beside its settings."""

    seed: Seed | None = None
    pins: dict[str, Any] = field(default_factory=dict)  # columns of ops/generations
    kept_at_start: int = 0


def plan_start(
    spark: SparkSession, lake: Lake, stream: str, generation: int, fold: KeyedFold
) -> Start:
    """The start of `stream`'s next run; SettingsError when the initial state is no good."""
    if newest_committed(lake, lake.checkpoint(stream, generation)) is not None:
        return _resume(lake, stream, generation)
    initial = read_initial_state(spark, lake, stream, fold)
    if initial is None:
        return Start(pins={"initial_state": None, "initial_as_of": None})
    pins = {
        "initial_state": initial.fingerprint,
        "initial_as_of": EPOCH + initial.as_of_us * MICROSECOND,
    }
    states = initial.rows.select(
        F.lit(0).alias("bucket"),
        "key",
        "state",
        F.lit(initial.as_of_us).alias("changed_at_us"),
        "timeout_at_us",
    )
    kept = states.where("timeout_at_us IS NULL").count() if fold.times_out else 0
    return Start(Seed(initial.as_of_us, states), pins, kept)


def _resume(lake: Lake, stream: str, generation: int) -> Start:
    """The checkpoint has the initial state; it must still be the one that was pinned."""
    where = {"stream": stream, "generation": generation}
    rows = read_ops(lake, "generations", where).to_pylist()
    if len(rows) != 1:
        raise LakeError(
            f"{lake.ops('generations')} has {len(rows)} rows of stream {stream}, generation "
            f"{generation}: it must have the one that the first run wrote. Put the table back "
            "from a copy: it says what the state was made with"
        )
    pinned = rows[0]
    as_of = pinned["initial_as_of"]
    seed = None if as_of is None else Seed((as_of - EPOCH) // MICROSECOND, None)
    return Start(seed, {"initial_state": read_fingerprint(lake, stream, pinned["initial_state"])})


def write_initial_rows(
    lake: Lake, table: ProductTable, fold: KeyedFold, stream: str, generation: int, start: Start
) -> None:
    """An update table shows all states from the beginning: also those without an event yet.

    Before the first batch is planned the whole table is replaced: an earlier attempt may have
    had another initial state. From then on it is pinned, and the rows are there.
    """
    planned = newest_planned(lake, lake.checkpoint(stream, generation))
    if fold.output_mode != "update" or start.seed is None or planned is not None:
        return
    if start.seed.states is not None:
        table.replace_all(project_states(start.seed.states, fold))
