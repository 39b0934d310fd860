"""The product table of a stream, written by Spark from what its engine made."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.fold.definition import EMITTED_AT_US, Definition
from include.lake.range_change import RangeChange
from spark_jobs.engines.state_rows import project_states
from spark_jobs.tables.product import DeltaProduct


class SparkProduct:
    """`ProductTable` of engine.py, which says what each method does."""

    def __init__(self, path: str, definition: Definition) -> None:
        self.path = path
        self._fold = definition.fold
        self._table = DeltaProduct(path, definition.fold, definition.comments)

    def write_once(self, emitted: DataFrame, app_id: str, batch_id: int, mark: str) -> None:
        self._table.write_once(emitted, app_id, batch_id, mark)

    def replace_all(self, states: DataFrame, mark: str) -> None:
        self._table.replace_all(project_states(states, self._fold), mark)

    def replace_range(
        self, outputs: Sequence[DataFrame], from_us: int | None, until_us: int | None, mark: str
    ) -> RangeChange:
        emitted = reduce(DataFrame.union, outputs)
        if from_us is not None:
            emitted = emitted.where(F.col(EMITTED_AT_US) >= from_us)
        # No stage emits at its `until` or later: should one do, Delta refuses its rows.
        return self._table.replace_range(emitted, from_us, until_us, mark)
