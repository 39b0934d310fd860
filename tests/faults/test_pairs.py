"""Two drivers of one stream in processes of their own: one of the pairs."""

import pytest

from tests.faults import pairs
from tests.faults.__main__ import on_spark, try_rows
from tests.faults.trial import WRONG


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.spark
def test_a_pair_leaves_every_row_right(tmp_path):
    results = try_rows([pairs.pair_of(1)], on_spark(), tmp_path / "results", pairs.result_of)
    assert [result for result in results if result.ended == WRONG] == []
