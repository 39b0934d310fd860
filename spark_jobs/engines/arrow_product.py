"""The product table of an engine without a JVM."""

import pyarrow as pa

from include.fold.definition import Definition
from include.lake.paths import Lake
from spark_jobs.engines.state_rows import projected
from spark_jobs.tables.arrow_tables import ArrowProduct


class ArrowProductTable(ArrowProduct):
    """`ProductTable` of `engines.engine`, with rows in Arrow."""

    def __init__(self, lake: Lake, stream: str, definition: Definition) -> None:
        super().__init__(lake.table(stream), definition.fold, definition.comments)

    def replace_all(self, states: pa.Table, mark: str) -> None:
        """Make the projection of these states the only rows of an update table, in one commit."""
        self.replace_rows(projected(self._fold, states), mark)
