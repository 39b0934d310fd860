"""Rows in one number: equal whatever their order."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def row_checksum(rows: DataFrame, *names: str) -> Column:
    """An aggregate: the sum of the hashes of these columns of all rows; 0 without any."""
    kinds = dict(rows.dtypes)
    # Spark hashes no map. Ours have their keys in order, so their text does as well.
    hashed = [
        F.to_json(F.struct(F.col(f"`{n}`"))) if "map<" in kinds[n] else F.col(f"`{n}`")
        for n in names
    ]
    # A wide decimal: a sum of 64-bit hashes outgrows 64 bits.
    return F.coalesce(F.sum(F.xxhash64(*hashed).cast("decimal(38, 0)")), F.lit(0))
