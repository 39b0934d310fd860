"""The key of an erasure: how it is written, its rows, and the history of tables."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from include.amend import erase_rows
from include.amend.erase_rows import (
    erase_in_ops,
    erased_key,
    find_rows,
    forget_history,
    landed_file_of,
)
from include.amend.plans import plan_erasure
from include.cli.__main__ import main
from include.connectors import DeltaTable
from include.ingest.amendments import amendments_of, begin_erasure
from include.ingest.ingest import ingest
from include.ingest.source_connector import move_source_aside
from include.lake.delta_log import dataset_of
from include.lake.ops import append_ops, read_ops
from include.lake.paths import Lake
from include.registry import source_named
from include.settings import Field
from include.streams import sources
from tests.amend.scan import files_with
from tests.deaths import KilledError, die
from tests.ingested import SIGNALS
from tests.landed_files import Landing, signal
from tests.refused import commands_in, refused

WHO = "someone-of-32-bytes-0123456789ab"


def test_a_key_is_of_a_stream_or_of_fields_of_a_source():
    ours = erased_key("device_signals", "7")
    assert ours == erased_key("signals", "device_id=7")
    assert ours.values == {"device_id": pa.scalar(7, pa.int64())}


@pytest.mark.parametrize(
    ("name", "text", "code", "subject"),
    [
        ("nobody", "x", "unknown_stream", "nobody"),
        ("signals", "7", "wrong_argument", "signals"),
        ("signals", "who=7", "wrong_argument", "who"),
        ("device_signals", "secret", "wrong_argument", "device_id"),
        ("user_events", "value=1.5", "wrong_argument", "value"),
        ("user_counts", "\udcff", "wrong_argument", "user_id"),
        ("user_events", "user_id=\udcff", "wrong_argument", "user_id"),
    ],
)
def test_what_is_no_key_is_refused_in_a_sentence_without_it(name, text, code, subject):
    with refused(code, subject=subject) as raised:
        erased_key(name, text)
    assert text.rpartition("=")[2] not in raised.value.message.split()


def test_a_certificate_knows_its_key_and_no_other(lake: Lake):
    key = erased_key("user_counts", WHO)
    begin_erasure(lake, source_named("user_events"), key.texts)
    begun = amendments_of(lake, "user_events").open
    assert begun is not None
    assert begun.is_of(key.texts)
    assert not begun.is_of(erased_key("user_counts", WHO[:-1]).texts)
    assert files_with(Path(lake.root), [WHO.encode()]) == set()
    assert commands_in(begun.unfinished("it")) == ["erase user_events KEY --apply"]
    assert amendments_of(lake, "signals").open is None


def test_rows_are_found_by_their_values_and_refused_ones_by_theirs_or_as_words(lake: Lake):
    landing = Landing(lake)
    landing.add(
        "a.jsonl",
        [
            signal(1, device_id=7),
            signal(2, device_id=77),
            signal(3, device_id=7, value="no number"),
            signal(4, device_id=8, value="7"),
            "torn: 7 and more",
            "torn: 77",
        ],
    )
    landing.add("b.jsonl", [signal(5, device_id=77)])
    ingest(lake, source_named("signals"))
    found = find_rows(lake, erased_key("device_signals", "7"))
    assert (found.rows, found.dates, found.files) == (1, ("2026-03-01",), ("a.jsonl",))
    rows = {"no number", "torn: 7 and more"}
    refused = dataset_of(lake.quarantine("signals")).to_table().to_pylist()
    told = [row["raw"] for row in refused if row["quarantine_id"] in found.refused]
    assert len(told) == 2
    assert all(any(part in text for part in rows) for text in told)


def test_what_is_told_of_the_source_and_its_streams_goes_and_what_records_are_read_by_stays(
    lake: Lake,
):
    run = {"run_id": "r", "subject": "device_signals", "outcome": "succeeded", "dag_run_id": "d"}
    append_ops(lake, "runs", [run | {"error": "of 7: no"}, {"run_id": "r2", "subject": "signals"}])
    others = [{"subject": name, "detail": "of 7"} for name in ("user_counts", "tables/user_counts")]
    ours = [{"subject": name, "detail": "of 7"} for name in ("signals", "bronze/signals")]
    append_ops(lake, "findings", [row | {"finding": "x"} for row in (*others, *ours)])
    assert erase_in_ops(lake, ["signals", "device_signals"]) == 3
    told = {row["subject"]: row["detail"] for row in read_ops(lake, "findings").to_pylist()}
    assert told == {row["subject"]: row["detail"] for row in others} | {
        row["subject"]: "[erased]" for row in ours
    }
    ended = {row["run_id"]: row for row in read_ops(lake, "runs").to_pylist()}
    assert {name: ended["r"][name] for name in run} == run
    assert (ended["r"]["error"], ended["r2"]["error"]) == ("[erased]", None)


def test_a_file_is_found_by_its_whole_name_and_by_rows_of_it_that_were_mended(lake: Lake):
    landing = Landing(lake)
    landing.add("day#1.jsonl", [signal(1, device_id=7)])
    landing.add("torn.jsonl", [signal(2, device_id=7, value="no number")])
    ingest(lake, source_named("signals"))
    found = find_rows(lake, erased_key("device_signals", "7"))
    assert found.files == ("day#1.jsonl", "torn.jsonl")
    assert landed_file_of(f"torn.jsonl#{'0a' * 16}") == "torn.jsonl"


def test_a_key_of_several_lines_is_not_that_of_its_first(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    event = {"user_id": "al", "event_type": "x", "event_time": "2026-03-01T00:00:00Z", "value": 1.0}
    folder = Path(lake.landing("user_events"))
    folder.mkdir(parents=True)
    rows = [event, event | {"user_id": "alice"}, event | {"user_id": "al\nice"}]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ingest(lake, source_named("user_events"))
    monkeypatch.setattr("sys.stdin", io.StringIO("al\nce\n"))
    assert main(["erase", "user_counts", "-", "--lake", lake.root]) == 2
    assert capsys.readouterr().err.endswith("(nothing_there)\n")
    for told in ("al", "al\nice"):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{told}\n"))
        assert main(["erase", "user_counts", "-", "--lake", lake.root]) == 0
        assert re.findall(r"(\d+) rows? of bronze", capsys.readouterr().out) == ["1"]


def test_files_that_wait_and_tables_of_streams_that_were_taken_out_are_named(lake: Lake):
    landing, key = Landing(lake), erased_key("device_signals", "7")
    landing.add("a.jsonl", [signal(1, device_id=7)])
    ingest(lake, source_named("signals"))
    landing.add("b.jsonl", [signal(2, device_id=7)])
    for name in ("tables/taken_out", "tables/user_counts", "savepoints/user_counts"):
        Path(lake.root, name, "_delta_log").mkdir(parents=True)
    plan = plan_erasure(lake, key)
    assert (plan.waiting, plan.undeclared) == (1, ("tables/taken_out",))


def test_sources_that_may_have_the_key_by_its_field_or_by_a_table_are_named(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    Landing(lake).add("a.jsonl", [signal(1, device_id=7)])
    ingest(lake, SIGNALS)
    reads = DeltaTable(uri=f"file://{lake.table('device_signals')}/")
    given = {
        "connector": reads,
        "fields": (Field(name="who", type="bigint", comment="Which device"),),
    }
    other = replace(SIGNALS, name="derived", **given)
    monkeypatch.setattr(
        sources,
        "SOURCES",
        (
            *sources.SOURCES,
            other,
            replace(other, name="far", connector=DeltaTable(uri="/far/device_signals")),
        ),
    )

    def elsewhere() -> list[str]:
        plan = plan_erasure(lake, erased_key("device_signals", "7"))
        return [each.partition(",")[0] for each in plan.elsewhere]

    assert elsewhere() == ["derived"]
    monkeypatch.setattr(sources, "SOURCES", (*sources.SOURCES, replace(SIGNALS, name="twin")))
    assert elsewhere() == ["derived", "twin"]


# In the way


def test_what_was_moved_aside_is_to_go_first_also_where_that_is_bronze_itself(lake: Lake):
    Landing(lake).add("a.jsonl", [signal(0, device_id=7)])
    ingest(lake, SIGNALS)
    move_source_aside(lake, SIGNALS)
    with refused("not_erasable"):
        plan_erasure(lake, erased_key("signals", "device_id=7"))


def test_what_has_landed_is_to_be_ingested_first(lake: Lake):
    Landing(lake).add("a.jsonl", [signal(0, device_id=7)])
    with refused(
        "nothing_there", subject="bronze/signals", command="./stateful stream device_signals"
    ):
        plan_erasure(lake, erased_key("signals", "device_id=7"))


# Tables without their past

SECRET = b"who-is-to-be-forgotten-0123456789"
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.mark.parametrize("step", [None, "_delete_files", "_clean_log"])
def test_no_file_of_an_older_version_or_of_the_change_feed_is_left(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str | None
):
    path = lake.table("any")
    rows = pa.table({"key": [SECRET.decode(), "other"]})
    write_deltalake(path, rows, configuration=FEED)
    Table(path).update({"key": "'none'"}, predicate="key != 'other'")
    assert any(Path(path, "_change_data").iterdir())
    if step is not None:
        with monkeypatch.context() as patch:
            patch.setattr(erase_rows, step, die)
            with pytest.raises(KilledError):
                forget_history(lake, path)
    forget_history(lake, path)
    assert files_with(Path(lake.root), [SECRET]) == set()
    assert not any(Path(path, "_change_data").iterdir())
    assert sorted(Table(path).to_pyarrow_table()["key"].to_pylist()) == ["none", "other"]
