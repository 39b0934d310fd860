"""The job of docs/internals.md shows what it says: three queries over the same signals, and their state."""

import re
import sys

import pytest

from spark_jobs import show_internals

pytestmark = [pytest.mark.full, pytest.mark.spark]


def test_three_queries_count_the_signals_and_show_their_plan_state_and_log(
    spark, tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(sys, "argv", ["show_internals", "--lake", str(tmp_path)])
    monkeypatch.setattr(show_internals, "spark_session", lambda *_: spark.newSession())
    show_internals.main()
    printed, logged = capfd.readouterr()
    hdfs, rocksdb, live = re.split(r"\n== (?=HDFS|RocksDB|device_signals)", printed)[1:]
    for plain in (hdfs, rocksdb):
        assert "!FlatMapGroupsInPandasWithState count_signals" in plain
        assert plain.count('"numRowsDroppedByWatermark": 1') == 1
    assert "3.delta" in hdfs
    assert "3.changelog" in rocksdb
    assert "!TransformWithStateInPySpark" in live
    assert live.count('"numRowsDroppedByWatermark": 0') == 4
    assert "bucket_state" in live
    assert "Committed 3" in logged
