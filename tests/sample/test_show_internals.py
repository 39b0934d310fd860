"""`docs.show_internals` shows what docs/design.md explains: three queries and their state."""

import re
import subprocess
import sys

import pytest

from include.settings import PROJECT

pytestmark = [pytest.mark.full, pytest.mark.spark]


def test_three_queries_count_the_signals_and_show_their_plan_state_and_log():
    command = [sys.executable, "-m", "docs.show_internals"]
    ran = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    hdfs, rocksdb, live = re.split(r"\n== (?=HDFS|RocksDB|device_signals)", ran.stdout)[1:]
    for plain in (hdfs, rocksdb):
        assert "!FlatMapGroupsInPandasWithState count_signals" in plain
        assert plain.count('"numRowsDroppedByWatermark": 1') == 1
    assert "3.delta" in hdfs
    assert "3.changelog" in rocksdb
    assert "!TransformWithStateInPySpark" in live
    assert live.count('"numRowsDroppedByWatermark": 0') == 4
    assert "bucket_state" in live
    assert "Committed 3" in ran.stderr
