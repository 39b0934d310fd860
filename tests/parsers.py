"""Tests of ingestion with each of its parsers: the one here, and Spark's."""

import pytest

from include.ingest.parse_files import Parse, parsed_here
from spark_jobs.tables.landing import parsed_on

HERE = "here"
ON_SPARK = "spark"

# Of the fixture `parse` (tests/ingest/conftest.py), which gives the parser here without them.
both_parsers = pytest.mark.parametrize(
    "parse", [HERE, pytest.param(ON_SPARK, marks=pytest.mark.spark)], indirect=True
)
# Spark's only in `make test-full`.
both_parsers_at_length = pytest.mark.parametrize(
    "parse",
    [HERE, pytest.param(ON_SPARK, marks=[pytest.mark.spark, pytest.mark.full])],
    indirect=True,
)


def parser(request: pytest.FixtureRequest, name: str) -> Parse:
    """The one of that name; Spark's with the session of all tests."""
    return parsed_on(request.getfixturevalue("spark")) if name == ON_SPARK else parsed_here
