"""A stream's figures through time against SQL over `ops`, and its biggest keys against plain Python."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from include.data_checks import Check
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.page.render import stream_html
from include.page.stream_figures import PARTS, StreamFigures, read_stream
from tests.page.history import NOW, streams_like, write_history

STREAMS = streams_like(2)
WINDOW = timedelta(days=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    write_history(lake, STREAMS, 40)
    return lake


@pytest.fixture(scope="module")
def figures(filled: Lake) -> StreamFigures:
    return read_stream(filled, STREAMS[1], NOW, WINDOW)


def sql(lake: Lake, table: str, query: str) -> list[tuple[object, ...]]:
    files = f"read_parquet('{lake.ops(table)}/*.parquet')"
    return duckdb.sql(f"SET TimeZone='UTC'; {query.replace('ROWS', files)}").fetchall()


def test_runs_are_those_of_the_window(filled, figures):
    expected = sql(
        filled,
        "runs",
        f"""SELECT run_id, outcome, rows_in, rows_folded, rows_late, rows_pending, rows_out, until,
        epoch(ended_at) - epoch(started_at), epoch(ended_at) - epoch(until),
        jvm_rss_bytes + python_rss_bytes FROM ROWS WHERE subject = 'stream_001'
        AND started_at >= TIMESTAMPTZ '{NOW - WINDOW}' ORDER BY ended_at""",
    )
    assert len(expected) == 24
    found = [
        (
            run.run_id,
            run.outcome,
            run.rows_in,
            run.rows_folded,
            run.rows_late,
            run.rows_pending,
            run.rows_out,
            run.until,
            run.seconds,
            run.lag_seconds,
            run.rss_bytes,
        )
        for run in figures.runs
    ]
    assert found == expected


def test_the_parts_of_a_run_add_up_to_it(figures):
    for run in figures.runs:
        assert tuple(run.parts) == PARTS
        assert sum(run.parts.values()) == pytest.approx(run.seconds)
        assert run.parts["planning"] == 3
        assert run.parts["fold, store and tables"] == 15
        assert run.parts["position"] == 1
        assert run.parts["other"] == 1


def test_a_run_whose_batches_nobody_measured_is_all_around_them(lake):
    run = {"run_id": "a", "job": "run_stream", "subject": "stream_000", "outcome": "failed"}
    append_ops(lake, "runs", [run | {"started_at": NOW - timedelta(seconds=9), "ended_at": NOW}])
    append_ops(lake, "batches", [{"stream": "stream_000", "run_id": "a", "committed_at": NOW}])
    (point,) = read_stream(lake, STREAMS[0], NOW, WINDOW).runs
    assert (point.parts["around batches"], point.rss_bytes, point.lag_seconds) == (9, 0, None)


def test_sizes_are_those_of_sql(filled, figures):
    expected = sql(
        filled,
        "checkpoint_sizes",
        f"""SELECT measured_at, sum(bytes), sum(bytes) FILTER (part = 'state'), sum(files),
        max(replay_versions) FROM ROWS WHERE stream = 'stream_001'
        AND measured_at >= TIMESTAMPTZ '{NOW - WINDOW}' GROUP BY measured_at ORDER BY measured_at""",
    )
    found = [
        (
            s.measured_at,
            sum(s.bytes_by_part.values()),
            s.bytes_by_part["state"],
            s.files,
            s.replay_versions,
        )
        for s in figures.sizes
    ]
    assert found == expected
    assert [row["bytes"] for row in figures.partitions] == sorted(
        row["bytes"] for row in figures.partitions
    )
    assert [row["partition"] for row in figures.partitions] == [0, 1, 2, 3]


def test_what_cannot_be_read_costs_its_own_part(figures):
    # The manifest names a savepoint whose table is not there.
    assert list(figures.troubles) == ["keys"]
    assert figures.line.rows_in


def test_an_empty_lake_has_no_figures_and_no_trouble(lake):
    figures = read_stream(lake, STREAMS[0], NOW, WINDOW)
    assert (figures.troubles, figures.runs, figures.sizes, figures.keys) == ({}, (), (), None)
    assert (figures.days, figures.line.until, figures.line.trouble) == ((), None, None)


def test_a_state_that_python_has_no_value_for_costs_the_keys_alone(lake):
    far = pa.array([300_000 * 10**12], pa.timestamp("us", "UTC"))  # after the year 9999
    rows = {"savepoint_id": ["new"], "key": ["a"], "state": [{"n": 1}], "changed_at": far}
    write_deltalake(f"{lake.root}/savepoints/stream_000", pa.table(rows | {"timeout_at": far}))
    append_ops(lake, "savepoints", [savepoint("new", NOW)])
    figures = read_stream(lake, STREAMS[0], NOW, WINDOW)
    assert list(figures.troubles) == ["keys"]
    page = stream_html(figures)
    assert "Not known: it could not be read." in page
    assert "No savepoint tells of them" not in page


def savepoint(name: str, until: datetime) -> dict[str, object]:
    return {
        "savepoint_id": name,
        "stream": "stream_000",
        "until": until,
        "created_at": until,
        "path": "savepoints/stream_000",
        "keys": 1,
    }


def test_a_big_key_of_several_fields_is_shown_as_inspect_shows_it(lake):
    at = pa.array([NOW], pa.timestamp("us", "UTC"))
    counts = pa.array(
        [[("b", Decimal("1.50")), ("a", None)]], pa.map_(pa.string(), pa.decimal128(9, 2))
    )
    rows = {
        "savepoint_id": ["new"],
        "key": [{"user": "é", "day": 7}],
        "state": pa.StructArray.from_arrays([counts], ["counts"]),
        "changed_at": at,
        "timeout_at": at,
    }
    write_deltalake(f"{lake.root}/savepoints/stream_000", pa.table(rows))
    append_ops(lake, "savepoints", [savepoint("new", NOW)])
    found = read_stream(lake, STREAMS[0], NOW, WINDOW)
    assert found.keys is not None
    (key,) = found.keys.keys
    assert (key.key, key.state) == ('{"user":"é","day":7}', '{"counts":{"b":1.50,"a":null}}')


def test_the_biggest_keys_are_those_of_the_newest_savepoint(lake):
    sizes = {f"k{n:03}": (n * 7_919) % 300 for n in range(300)}
    at = datetime(2026, 11, 24, tzinfo=UTC)
    states = [{"texts": "x" * size, "n": 1} for size in sizes.values()]
    rows = pa.table(
        {
            "savepoint_id": ["new"] * len(sizes),
            "key": list(sizes),
            "state": pa.array(states, pa.struct([("texts", pa.string()), ("n", pa.int64())])),
            "changed_at": pa.array([at] * len(sizes), pa.timestamp("us", "UTC")),
            "timeout_at": pa.nulls(len(sizes), pa.timestamp("us", "UTC")),
        }
    )
    old = rows.set_column(0, "savepoint_id", pa.array(["old"] * len(sizes)))
    old = old.set_column(1, "key", pa.array(["older"] * len(sizes)))
    path = f"{lake.root}/savepoints/stream_000"
    write_deltalake(path, pa.concat_tables([rows, old]), partition_by=["savepoint_id"])
    append_ops(lake, "savepoints", [savepoint("old", at - WINDOW), savepoint("new", at)])
    found = read_stream(lake, STREAMS[0], NOW, WINDOW).keys
    assert found is not None
    assert found.until == at
    expected = sorted(sizes, key=lambda key: -sizes[key])[:10]
    assert [key.key for key in found.keys] == expected
    # Two texts of Arrow, each behind an offset of 4 bytes, and an int64.
    assert [key.bytes for key in found.keys] == [4 + 4 + 4 + sizes[key] + 8 for key in expected]


def test_of_each_check_its_newest_verdict_by_the_condition_of_now(lake):
    low = Check(name="low", each_row="value < 9")
    sums = Check(name="sums", together="sum(value) < 9", severity="warning")
    stream = replace(STREAMS[0], checks=(low, sums))
    row = {
        "stream": stream.name,
        "check_name": "low",
        "condition": "value < 9",
        "severity": "warning",
    }
    asked = [
        row | {"checked_at": NOW - timedelta(hours=hours), "rows": 5} | told
        for hours, told in (
            (1, {"is_met": False, "rows_failing": 2, "examples": '["<9>"]'}),
            (2, {"is_met": True, "rows_failing": 0}),
            (0.5, {"is_met": True, "rows_failing": 0, "condition": "value < 99"}),
        )
    ]
    append_ops(lake, "data_checks", asked)
    found = read_stream(lake, stream, NOW, WINDOW)
    assert [
        (c["check_name"], c["severity"], c["rows_failing"], c["is_met"]) for c in found.checks
    ] == [
        ("low", "error", 2, False),
        ("sums", "warning", None, None),
    ]
    page = stream_html(found)
    assert "not published" in page
    assert "not asked yet" in page
    assert "[&#34;&lt;9&gt;&#34;]" in page
    assert "Checks of its rows" not in stream_html(read_stream(lake, STREAMS[0], NOW, WINDOW))


def test_skew_is_what_stands_out_of_buckets_and_of_each_stores_partitions(lake):
    stream = STREAMS[0]
    run = {"run_id": "a", "job": "run_stream", "subject": stream.name, "outcome": "succeeded"}
    times = {"started_at": NOW - timedelta(seconds=9), "ended_at": NOW, "jvm_start_seconds": 9.5}
    append_ops(lake, "runs", [run | times])
    counts = [(100, 40, 5), (10, 2, 5), (0, None, 0), (10, None, 5)]  # 5 buckets: 2.0, 1.0
    names = ("rows_in", "rows_in_most", "buckets_touched")
    batch = {"stream": stream.name, "run_id": "a", "committed_at": NOW}
    append_ops(lake, "batches", [batch | dict(zip(names, of, strict=True)) for of in counts])
    size = {"stream": stream.name, "measured_at": NOW, "occasion": "after_run", "files": 1}
    state = size | {"part": "state", "operator": 0, "store": "default"}
    parts = [state | {"partition": number, "bytes": of} for number, of in enumerate((10, 10, 30))]
    other = state | {"store": "other", "partition": 0, "bytes": 900}
    append_ops(lake, "checkpoint_sizes", [*parts, other, size | {"part": "offsets", "bytes": 5}])
    found = read_stream(lake, stream, NOW + timedelta(seconds=1), WINDOW)
    (point,) = found.runs
    assert (point.bucket_skew, point.jvm_start_seconds) == (2.0, 9.5)
    assert [each.skew for each in found.sizes] == [3.0]
    page = stream_html(found)
    for said in (
        "JVM start",
        "Rows of a bucket, in times of the mean",
        "State partition, in times",
    ):
        assert said in page
