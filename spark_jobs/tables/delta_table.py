"""Delta tables made with their schema and its documentation, before their first row."""

from collections.abc import Mapping, Sequence

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from include.lake.columns import Column


def create_if_absent(
    spark: SparkSession,
    path: str,
    columns: Sequence[Column],
    comment: str,
    properties: Mapping[str, str],
    partition_by: Sequence[str] = (),
) -> None:
    """Create the table at `path`; one that is there already stays as it is."""
    builder = DeltaTable.createIfNotExists(spark).location(path).comment(comment)
    for column in columns:
        builder = builder.addColumn(
            column.name, column.type, nullable=column.nullable, comment=column.comment
        )
    for name, value in properties.items():
        builder = builder.property(name, value)
    if partition_by:
        builder = builder.partitionedBy(*partition_by)
    builder.execute()
