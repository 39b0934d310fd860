"""The figures of a stream's page for a time, against SQL over `ops`."""

import json
import random
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.page.stream_figures import StreamFigures, read_stream
from tests.page.history import NOW, streams_like, write_history

STREAM, OTHER = streams_like(2)
BEGAN = NOW - timedelta(days=9)
COUNTED = (
    *("rows_in", "rows_folded", "rows_late", "rows_pending", "rows_out", "rows_quarantined"),
    *("jvm_rss_bytes", "python_rss_bytes"),
)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    write_history(lake, [OTHER], 3)  # whose rows are nobody's here, but those of the source
    chance = random.Random(7)
    ended, runs = BEGAN, []
    while (ended := ended + chance.randint(1, 4 * 3_600) * SECOND) < NOW:
        runs.append(_run(chance, len(runs), ended))
    append_ops(lake, "runs", runs)
    append_ops(lake, "batches", [batch for run in runs for batch in _batches(chance, run)])
    append_ops(lake, "figures", [row for run in runs for row in _figures(chance, run)])
    return lake


def _run(chance: random.Random, number: int, ended: datetime) -> dict[str, Any]:
    is_ingest, is_whole = number % 4 == 1, chance.random() < 0.9
    return {
        "run_id": f"r{number}",
        "job": "ingest_source" if is_ingest else chance.choice(["run_stream", "compact_state"]),
        "subject": STREAM.source if is_ingest else STREAM.name,
        "started_at": ended - chance.randint(1, 3 * 3_600) * SECOND,
        "ended_at": ended,
        "outcome": "succeeded" if is_whole else "failed",
        **{name: chance.randint(0, 99) if is_whole else None for name in COUNTED},
        "until": ended - chance.randint(0, 99) * SECOND if is_whole else None,
    }


def _batches(chance: random.Random, run: dict[str, Any]) -> list[dict[str, Any]]:
    """All in the time of the run, whatever span that begins in."""
    seconds = int((run["ended_at"] - run["started_at"]).total_seconds())
    return [
        {
            "stream": STREAM.name,
            "run_id": run["run_id"],
            "committed_at": run["started_at"] + chance.randint(0, seconds) * SECOND,
            "durations_ms": json.dumps({"triggerExecution": chance.randint(1, 9) * 100}),
        }
        for _ in range(chance.randint(0, 3))
    ]


def _figures(chance: random.Random, run: dict[str, Any]) -> list[dict[str, Any]]:
    parts = {f"state/0/{n}": chance.randint(1, 99) for n in range(3)} | {"offsets": 5}
    of_parts = [{"figure": "checkpoint_bytes", "part": p, "value": n} for p, n in parts.items()]
    counts = [{"figure": name, "value": n} for name, n in (("files", 7), ("replay_versions", 3))]
    known = {"subject": STREAM.name, "at": run["ended_at"]}
    return [known | row for row in (*of_parts, *counts)]


def sql(lake: Lake, query: str) -> list[tuple[Any, ...]]:
    for table in ("runs", "batches", "figures"):
        query = query.replace(f"ops/{table}", f"read_parquet('{lake.ops(table)}/*.parquet')")
    return duckdb.sql(f"SET TimeZone='UTC'; {query}").fetchall()


def shown(lake: Lake, since: datetime) -> StreamFigures:
    figures = read_stream(lake, STREAM, NOW, NOW - since)
    assert figures.problems == {}
    assert figures.begin == since
    return figures


def ended_at(lake: Lake) -> list[datetime]:
    return [at for (at,) in sql(lake, "SELECT ended_at FROM ops/runs")]


# Edges are also just those of runs.
edges = st.one_of(
    st.integers(0, 200), st.timedeltas(timedelta(0), NOW - BEGAN + DAY).map(NOW.__sub__)
)


def edge(lake: Lake, drawn: int | datetime) -> datetime:
    ends = ended_at(lake)
    return ends[drawn % len(ends)] if isinstance(drawn, int) else drawn


@given(first=edges)
def test_the_figures_of_a_time_are_those_of_sql(filled, first):
    since = min(edge(filled, first), NOW - SECOND)
    figures = shown(filled, since)
    within = f">= TIMESTAMPTZ '{since}'"
    ended = f"ended_at {within}"
    ours, source = f"subject = '{STREAM.name}'", f"subject = '{STREAM.source}'"
    (sums,) = sql(
        filled,
        f"""SELECT count(*), coalesce(sum(rows_in), 0), coalesce(sum(rows_late), 0) FROM ops/runs
        WHERE {ours} AND job = 'run_stream' AND {ended}""",
    )
    assert (figures.line.runs, figures.line.rows["in"], figures.line.rows["late"]) == sums
    ((quarantined,),) = sql(
        filled,
        f"SELECT coalesce(sum(rows_quarantined), 0) FROM ops/runs WHERE {source} AND {ended}",
    )
    assert figures.line.rows["quarantined"] == quarantined
    runs = sql(
        filled,
        f"""SELECT run_id, outcome, rows_in, rows_folded, rows_late, rows_pending, rows_out, until,
        epoch(ended_at) - epoch(started_at), epoch(ended_at) - epoch(until),
        coalesce(jvm_rss_bytes + python_rss_bytes, 0),
        greatest(epoch(ended_at) - epoch(started_at) - coalesce((SELECT sum((durations_ms->>'triggerExecution')::DOUBLE) / 1000 FROM ops/batches b
        WHERE b.run_id = r.run_id AND b.stream = '{STREAM.name}'), 0), 0)
        FROM ops/runs r WHERE {ours} AND {ended} ORDER BY ended_at""",
    )
    shown_of_run = itemgetter(
        *("run_id", "outcome", "rows_in", "rows_folded", "rows_late", "rows_pending", "rows_out"),
        *("until", "seconds", "lag_seconds", "rss_bytes"),
    )
    assert [shown_of_run(r) for r in figures.runs] == [r[:-1] for r in runs]
    assert [r["parts"]["around batches"] for r in figures.runs] == pytest.approx(
        [r[-1] for r in runs]
    )
    assert all(sum(r["parts"].values()) == pytest.approx(r["seconds"]) for r in figures.runs)
    measured = sql(
        filled,
        f"""SELECT "at", sum(value) FILTER (figure = 'checkpoint_bytes'),
        sum(value) FILTER (figure = 'files'), max(value) FILTER (figure = 'replay_versions'),
        max(value) FILTER (part LIKE 'state/%')
        FROM ops/figures WHERE subject = '{STREAM.name}' AND "at" {within} GROUP BY ALL ORDER BY ALL""",
    )
    assert [
        (m.at, m.bytes, m.files, m.replay_versions, max(m.partitions.values()))
        for m in figures.measured
    ] == measured


def test_what_is_so_now_is_the_same_on_the_page_of_any_time(filled):
    now, then = read_stream(filled, STREAM, NOW), shown(filled, NOW - HOUR)
    ran = f"FROM ops/runs WHERE subject = '{STREAM.name}' AND job = 'run_stream'"
    found = sql(filled, f"SELECT min(started_at), arg_max(rows_pending, ended_at) {ran}")
    assert [(now.begin, now.line.rows_pending)] == found
    for name in (
        "until",
        "until_lag",
        "run_end",
        "rows_pending",
        "next_run",
        "state_keys",
        "state_bytes",
        "findings",
    ):
        assert getattr(now.line, name) == getattr(then.line, name)
    assert (now.savepoints, now.findings) == (then.savepoints, then.findings)
    assert now.line.status.table_status == then.line.status.table_status


def test_the_days_of_a_time_end_with_that_of_now(lake):
    write_history(lake, [STREAM], 40)
    figures = read_stream(lake, STREAM, NOW, 2 * DAY)
    assert [f"{day.date:%d}" for day in figures.line.days] == ["23", "24"]
