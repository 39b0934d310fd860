"""A stream's checks, by Spark: their conditions are its SQL, over rows as the table has them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    ParseException,
    PySparkException,
    SparkRuntimeException,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from include.data_checks import Check, Verdict
from include.settings import SettingsError

EXAMPLES = 3
# What a row may make of a condition: 1 / 0, CAST('a' AS int), element_at(list, 5).
OF_ROWS = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)


def refuse_wrong(rows: DataFrame, checks: Sequence[Check]) -> None:
    """SettingsError for the first check that Spark cannot ask of such rows; none is read."""
    for check in checks:
        with _refused(check):
            asked = F.expr(check.condition)
            told = rows.select(asked) if check.each_row else rows.agg(asked)
            kind = told.schema[0].dataType
            plan = told._jdf.queryExecution().analyzed()
        if not plan.deterministic():
            raise SettingsError(
                f"check {check.name}: `{check.condition}` may say another thing of the same rows "
                "each time that it is asked: leave out what is drawn at random",
                subject=check.name,
            )
        if not isinstance(kind, BooleanType):
            raise SettingsError(
                f"check {check.name}: `{check.condition}` must be true or false, and is "
                f"{kind.simpleString()}",
                subject=check.name,
            )
        with _refused(check):  # an aggregate in each_row fails only here
            _ = rows.agg(_answer(check)).schema


@contextmanager
def _refused(check: Check) -> Iterator[None]:
    """SettingsError in place of what Spark says of a condition that it cannot ask."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise SettingsError(
            f"check {check.name}: `{check.condition}`: {_said(error)}", subject=check.name
        ) from error


def _said(error: PySparkException) -> str:
    return str(error).strip().splitlines()[0]  # a line that is empty comes first


def judge_rows(rows: DataFrame, checks: Sequence[Check]) -> list[Verdict]:
    """What each check says of them, in one pass; nothing of no rows.

    A check whose condition fails for a row is not met: the pass is one for each check then.
    """
    try:
        return _judged(rows, checks)
    except OF_ROWS as error:
        if len(checks) == 1:
            return [Verdict(checks[0], rows.count(), None, problem=_said(error))]
        return [verdict for check in checks for verdict in judge_rows(rows, [check])]


def _judged(rows: DataFrame, checks: Sequence[Check]) -> list[Verdict]:
    asked = [_answer(check).alias(f"answer_{number}") for number, check in enumerate(checks)]
    answers = rows.agg(F.count(F.lit(1)), *asked).collect()[0]
    count = answers[0]
    if not count:
        return []
    return [_verdict(rows, *asked, count) for asked in zip(checks, answers[1:], strict=True)]


def _answer(check: Check) -> Column:
    """How many rows do not meet it; of rows together 0, or null when they do not."""
    if check.each_row is not None:
        return F.count_if(~_is_met(check))
    return F.when(_is_met(check), F.lit(0))


def _is_met(check: Check) -> Column:
    return F.coalesce(F.expr(check.condition), F.lit(False))


def _verdict(rows: DataFrame, check: Check, failing: int | None, count: int) -> Verdict:
    if not failing:
        return Verdict(check, count, failing)
    found = rows.where(~_is_met(check)).limit(EXAMPLES)
    whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row")
    return Verdict(check, count, failing, tuple(row[0] for row in found.select(whole).collect()))
