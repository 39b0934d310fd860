"""Columns of bronze that were added later, in Spark: filled from where older rows have them."""

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from include.landing.late_fields import LateField, rescued_values
from include.settings import RESCUED


def fill_late_fields(rows: DataFrame, late: Sequence[LateField]) -> DataFrame:
    """Rows of bronze, with those columns as the table has them today."""
    if not late:
        return rows
    return rows.withColumns({field.name: _filled(field) for field in late})


def _filled(field: LateField) -> Column:
    columns = [F.col(field.name)]
    if field.was is not None:
        columns.append(_filled(field.was).cast(field.type))
    if field.rescued_as is not None:
        # Asked only of rows that need it: parsing costs more than the rest of a row.
        needed = F.when(F.coalesce(*columns).isNull(), F.col(RESCUED))
        columns.append(_reader(field)(needed))
    return F.coalesce(*columns)


def _reader(field: LateField) -> Callable[[Column], Column]:
    def read(texts: pa.Array) -> pa.Array:
        return rescued_values(field, texts)

    udf: Callable[[Column], Column] = arrow_udf(read, returnType=field.type)  # type: ignore[call-overload]
    return udf
