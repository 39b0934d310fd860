"""A visitor is erased from a lake of real Delta and RocksDB: no byte of 32 that only they had is found."""

import gzip
import importlib
import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle

import include.streams
from include.amend.erase_rows import erased_key
from include.cli.__main__ import main
from include.fold.admission import micros_of
from include.ingest.amendments import amendments_of
from include.ingest.ingest import ingest
from include.lake.generations import complete_until
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.maintain.check_checkpoint import check_checkpoint
from include.registry import source_named, stream_named
from include.settings import Field, Source
from include.stream.bronze import newest_bronze
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions
from include.stream_definition import load_definition
from include.streams import sources
from spark_jobs.engines.packing import Bounds
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.engines.state_rows import projected
from spark_jobs.erase_key import erase
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.run_stream import drain
from spark_jobs.write_savepoint import write_live_savepoint
from tests.amend.rocksdb import unpacked_by
from tests.amend.scan import files_with
from tests.simulator.local_engine import LocalEngine

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.turn(1)]

START = datetime(2026, 3, 1, tzinfo=UTC)
STREAMS = ("visits_of_visitor", "visits_of_page")
VISITS = Source(
    name="visits",
    time_field="at",
    comment="Visits",
    fields=(
        Field(name="visitor", type="string", comment="Who", path="who.id"),
        Field(name="page", type="string", comment="Where"),
        Field(name="note", type="string", comment="What they said", required=False),
        Field(name="parts", type="array<string>", comment="Of it", required=False),
    ),
)
# 32 bytes each: of the key, a field, a list, what is no field, a refused row, a failed call, a tag.
WHO, NOTE, PART, EXTRA, REFUSED, FAILED = (f"{n}{'0123456789abcdef' * 2}"[:32] for n in "ABCDEF")
STILL = "'is_heartbeat': True"  # keeps the clock of bronze
SECRETS = [secret.encode() for secret in (WHO, NOTE, PART, EXTRA, REFUSED, FAILED)]


@pytest.fixture
def visits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    folder = Path(__file__).parent / "erased_streams"
    monkeypatch.setattr(include.streams, "__path__", [*include.streams.__path__, str(folder)])
    monkeypatch.setattr(sources, "SOURCES", (*sources.SOURCES, VISITS))
    for name in STREAMS:
        # Spark's workers do not find these files.
        cloudpickle.register_pickle_by_value(importlib.import_module(f"include.streams.{name}"))
    return lake


def visit(who: str, minute: float, note: str | None, **more: Any) -> dict[str, Any]:
    at = START + timedelta(minutes=minute)
    page = f"page {random.Random(f'{who} {minute}').randrange(300)}"
    return {"who": {"id": who}, "page": page, "note": note, "at": at.isoformat(), **more}


def land(lake: Lake, number: int) -> None:
    """An hour of visits of many, and a few of the one; in two files of two formats."""
    rng, from_minute = random.Random(number), number * 60
    others = [
        visit(
            f"visitor {rng.randrange(150)}", from_minute + rng.randrange(60), f"{rng.random()} " * 8
        )
        for _ in range(500)
    ]
    own = [
        visit(WHO, from_minute + 5, f"{NOTE} {number}", parts=["x", PART], tags={"deep": [EXTRA]}),
        visit(WHO, from_minute + 20, f"fail {FAILED} {number}"),
        visit(WHO, from_minute + 59, None, page=7, secret=REFUSED),
        visit(WHO, from_minute + 59.5, "short"),
    ]
    folder = Path(lake.landing("visits"))
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(map(json.dumps, [*others[:250], *own]))
    (folder / f"{number}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (folder / f"{number}-others.jsonl").write_text("\n".join(map(json.dumps, others[250:])))


def run(spark, lake: Lake) -> None:
    ingest(lake, source_named("visits"))
    for name in STREAMS:
        drain(SparkEngine(spark), lake, stream_named(name))


def lived(spark, lake: Lake) -> None:
    """A run, savepoints, a rebuild, whose old checkpoint is kept, and a run with more visits."""
    engine = SparkEngine(spark)
    land(lake, 0)
    run(spark, lake)
    for name in STREAMS:
        write_live_savepoint(engine, open_stream(lake, stream_named(name)), "some-run", "on_demand")
    rebuild(engine, lake, stream_named("visits_of_visitor"), RebuildOptions())
    land(lake, 1)
    run(spark, lake)
    for path in (lake.bronze("visits"), lake.table("visits_of_visitor")):
        DeltaTable(path).create_checkpoint()
    quoted = {"subject": "visits", "finding": "x", "detail": f"note is {NOTE} 1"}
    append_ops(lake, "findings", [quoted])


def rows_of(path: str, *without: str) -> Counter[str]:
    rows = DeltaTable(path).to_pyarrow_table().drop_columns(list(without)).to_pylist()
    return Counter(map(repr, rows))


def table_rows(lake: Lake, name: str) -> Counter[Any]:
    """The count of each row of the table; a row is its values and the emitting instant."""
    rows = DeltaTable(lake.table(name)).to_pyarrow_table().to_pylist()
    columns = load_definition(stream_named(name)).fold.output_columns
    return Counter(
        (*(str(row[column.name]) for column in columns), micros_of(row["emitted_at"]))
        for row in rows
    )


def oracle_rows(lake: Lake, name: str) -> Counter[Any]:
    """The same of all bronze, folded by one Python process from the beginning."""
    stream, engine = stream_named(name), LocalEngine()
    until, fold = complete_until(lake, name), load_definition(stream).fold
    assert until is not None
    bronze, until_us = newest_bronze(lake, stream.source), micros_of(until)
    events = engine.events(lake, stream.source, fold, Bounds(bronze.ingested_at_us, None, until_us))
    done = engine.fold(events, fold, 1, until_us, None)
    rows = done.outputs if fold.output_mode == "append" else projected(fold, done.states)
    values = (map(str, rows[column.name].to_pylist()) for column in fold.output_columns)
    return Counter(zip(*values, rows["emitted_at_us"].to_pylist(), strict=True))


def test_no_byte_of_a_visitor_is_left_anywhere_and_all_else_is_as_it_was(spark, visits, capsys):
    lake, root = visits, Path(visits.root)
    lived(spark, lake)
    unpack = unpacked_by(spark)
    there = files_with(root, SECRETS, unpack)
    kinds = {"/".join(name.split("/")[:2]) for name in there}
    assert kinds >= {
        "landing/visits",
        "bronze/visits",
        "quarantine/visits",
        "ops/findings",
        *(f"{part}/{name}" for part in ("tables", "savepoints", "checkpoints") for name in STREAMS),
        "dead_letters/visits_of_visitor",
    }, kinds
    for kind in ("_delta_log", ".sst", ".changelog", "_change_data", ".checkpoint.parquet"):
        assert any(kind in name for name in there), kind

    before = rows_of(lake.bronze("visits"))
    seen = rows_of(lake.table("visits_of_visitor"))
    assert main(["erase", "visits_of_visitor", WHO, "--lake", lake.root]) == 0
    plan = capsys.readouterr().out
    assert "6 rows of bronze, 2 rows of quarantine" in plan
    assert "visits_of_page" in plan
    assert "nothing was changed" in plan
    assert WHO not in plan

    erase(SparkEngine(spark), lake, erased_key("visits_of_visitor", WHO))
    spark.catalog.clearCache()
    assert files_with(root, SECRETS, unpack) == set()
    events = (row for row in rows_of(lake.bronze("visits")).elements() if STILL not in row)
    retained = {row: n for row, n in before.items() if WHO not in row and STILL not in row}
    assert Counter(events) == Counter(retained)
    assert seen - rows_of(lake.table("visits_of_visitor")) == Counter(
        {row: n for row, n in seen.items() if WHO in row}
    )

    (Path(lake.landing("visits")) / "9.jsonl").write_text(json.dumps(visit("new", 200, "hello")))
    run(spark, lake)
    assert files_with(root, SECRETS, unpack) == set()
    for name in STREAMS:
        assert table_rows(lake, name) == oracle_rows(lake, name)
        found = check_checkpoint(lake, stream_named(name)).findings
        assert not [finding for finding in found if finding.severity == "error"]
    (done,) = amendments_of(lake, "visits").known
    assert (done.rows_bronze, done.rows_quarantined, done.files_landed) == (6, 2, 2)
    assert done.is_done
