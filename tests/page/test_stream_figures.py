"""A stream's figures through time against SQL over `ops`, and its biggest keys against plain Python."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from include.fold.admission import micros_of
from include.lake.ops import Measured, append_ops, record_figures
from include.page.render import stream_html
from include.page.stream_figures import read_stream
from include.settings import Check
from tests.page.history import NOW, streams_like
from tests.written_savepoint import written_savepoint

STREAMS = streams_like(2)
WINDOW = timedelta(days=1)


def test_the_biggest_keys_are_those_of_the_newest_savepoint(lake):
    sizes = {f"k{n:03}": (n * 7_919) % 300 for n in range(300)}
    at = datetime(2026, 11, 24, tzinfo=UTC)
    states = [{"texts": "x" * size, "n": 1} for size in sizes.values()]
    rows = pa.table(
        {
            "key": list(sizes),
            "state": pa.array(states, pa.struct([("texts", pa.string()), ("n", pa.int64())])),
            "changed_at_us": pa.array([micros_of(at)] * len(sizes), pa.int64()),
            "timeout_at_us": pa.nulls(len(sizes), pa.int64()),
        }
    )
    written_savepoint(lake, "stream_000", at, rows)
    older = rows.set_column(0, "key", pa.array(["older"] * len(sizes)))
    written_savepoint(lake, "stream_000", at - WINDOW, older)
    found = read_stream(lake, STREAMS[0], NOW, WINDOW).keys
    assert found is not None
    assert found.until == at
    expected = sorted(sizes, key=lambda key: -sizes[key])[:10]
    assert [key["key"] for key in found.keys] == expected
    # Two texts of Arrow, each behind an offset of 4 bytes, and an int64.
    assert [key["bytes"] for key in found.keys] == [4 + 4 + 4 + sizes[key] + 8 for key in expected]


def test_a_check_is_met_or_has_its_open_finding(lake):
    low = Check(name="low", each_row="value < 9")
    sums = Check(name="sums", together="sum(value) < 9", severity="warning")
    stream = replace(STREAMS[0], checks=(low, sums))
    row = {"subject": stream.name, "finding": "data_check_warning", "severity": "warning"}
    said = "check sums: 2 rows together do not meet `sum(value) < 9`; <published>"
    append_ops(lake, "findings", [row | {"found_at": NOW, "detail": said}])
    found = read_stream(lake, stream, NOW, WINDOW)
    assert [found.not_met(check) for check in found.checks] == ["", said]
    assert "&lt;published&gt;" in stream_html(found)


def test_skew_is_what_stands_out_of_buckets_and_of_partitions(lake):
    stream = STREAMS[0]
    run = {"run_id": "a", "job": "run_stream", "subject": stream.name, "outcome": "succeeded"}
    times = {"started_at": NOW - timedelta(seconds=9), "ended_at": NOW, "jvm_start_seconds": 9.5}
    append_ops(lake, "runs", [run | times])
    counts = [(100, 40, 5), (10, 2, 5), (0, None, 0), (10, None, 5)]  # 5 buckets: 2.0, 1.0
    names = ("rows_in", "rows_in_most", "buckets_touched")
    batch = {"stream": stream.name, "run_id": "a", "committed_at": NOW}
    append_ops(lake, "batches", [batch | dict(zip(names, of, strict=True)) for of in counts])
    bytes_of = {"state/0/0": 10, "state/0/1": 10, "state/0/2": 30, "offsets": 5}
    record_figures(lake, stream.name, None, Measured(NOW, bytes_of, 4, 0))
    found = read_stream(lake, stream, NOW + timedelta(seconds=1), WINDOW)
    (point,) = found.runs
    assert (point["bucket_skew"], point["jvm_start_seconds"]) == (2.0, 9.5)
    assert [each.skew for each in found.measured] == [3.0]
