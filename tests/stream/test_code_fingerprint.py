"""What a stream's fingerprint stands on, and what it passes over; and the stream's identity."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from include.fold.admission import EPOCH, MICROSECOND
from include.ingest.initial_state import read_fingerprint
from include.lake.errors import SettingsError
from include.lake.paths import Lake
from include.registry import stream_named
from include.stream import stream_identity as module
from include.stream.stream_identity import code_fingerprint, stream_identity
from tests.initial_state import AS_OF, AS_OF_US, Row, document, rows_table, write_file, write_table
from tests.refused import refused
from tests.stream.ledgers import entry, record
from tests.tried_stream import HELPER, IMPORT, SOURCE, STREAM, changed, files_in


@pytest.fixture
def files(tmp_path, monkeypatch):
    with files_in(tmp_path, monkeypatch) as files:
        yield files


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("for event in events:", "for event in events:  # each of them"),
        ('"""Sums."""', '"""Adds all of them up."""'),
        ('        """Sums."""\n', ""),
        ('"""The title."""', '"""Another title."""'),
        ("class Total(NamedTuple):", 'class Total(NamedTuple):\n    """The state."""\n'),
        ('"total": "The sum"}', '"total": "Their sum"}'),
        ("COMMENTS = ", "COMMENTS: dict[str, str] = "),
        ("Row(key, total)", "Row(\n            key,\n            (total),\n        )"),
        ('key="device_id"', "key='device_id'"),
    ],
)
def test_words_and_formatting_do_not_count(files, old, new):
    assert files.fingerprint(changed(SOURCE, old, new)) == files.fingerprint()


def test_words_in_what_it_imports_do_not_count(files):
    helper = f'"""Sums."""\n{HELPER}# the end\n'
    assert files.fingerprint(helper=helper) == files.fingerprint()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("event.value > 0", "event.value >= 0"),
        ("if state.exists else 0", "if state.exists else 1"),
        ("    total: int\n\nclass Row", "    total: int\n    seen: int = 0\n\nclass Row"),
        ("state.update(Total(total))", "state.update(Total(total))\n        print('an effect')"),
    ],
)
def test_a_changed_function_or_state_counts(files, old, new):
    assert files.fingerprint(changed(SOURCE, old, new)) != files.fingerprint()


@pytest.mark.parametrize(
    "statement",
    [
        IMPORT,
        "from include.streams import tried_helper\nadded = tried_helper.added",
        "import include.streams.tried_helper as helper\nadded = helper.added",
        "from .tried_helper import added",
    ],
)
def test_what_it_imports_of_the_streams_counts(files, statement):
    source = changed(SOURCE, IMPORT, statement)
    other = changed(HELPER, "total + value", "total - value")
    assert files.fingerprint(source, other) != files.fingerprint(source)


@pytest.mark.parametrize(
    "statement",
    ["from .sums import added", "from . import sums\nadded = sums.added", "from .sums import *"],
)
def test_what_a_package_of_the_streams_imports_of_itself_counts(files, statement):
    package = files.folder / "tried_package"
    package.mkdir()
    (package / "__init__.py").write_text(statement)
    source = changed(SOURCE, IMPORT, "from include.streams.tried_package import added")
    found = []
    for text in (HELPER, changed(HELPER, "total + value", "total - value")):
        (package / "sums.py").write_text(text)
        found.append(files.fingerprint(source))
    assert found[0] != found[1]


def test_modules_that_import_each_other_are_read_once(files):
    helper = f"{HELPER}\ndef define():\n    import include.streams.tried_stream\n"
    assert files.fingerprint(helper=helper) != files.fingerprint()


def test_settings_the_source_and_the_initial_state_count(files):
    longer = replace(STREAM, settings={"step": timedelta(minutes=2)})
    # Its events may have the same fields, but they are others.
    elsewhere = replace(STREAM, source="user_events")
    found = [files.fingerprint(stream=stream) for stream in (STREAM, longer)]
    found += [code_fingerprint(STREAM, initial_state) for initial_state in ("one@1", "one@2")]
    assert len({*found, code_fingerprint(elsewhere, None)}) == 5


@pytest.mark.parametrize(
    "settings",
    [
        {"buckets": 100, "state_partitions": 7, "watermark_delay": timedelta(hours=1)},
        {"on_error": "dead_letter"},
    ],
)
def test_how_state_is_spread_what_is_late_and_what_becomes_of_errors_do_not_count(files, settings):
    assert files.fingerprint(stream=replace(STREAM, **settings)) == files.fingerprint()


def test_a_release_whose_fold_comes_to_other_results_counts(files, monkeypatch):
    before = files.fingerprint()
    monkeypatch.setattr(module, "FOLD_SEMANTICS", module.FOLD_SEMANTICS + 1)
    assert code_fingerprint(STREAM, None) != before


def test_a_wrong_entry_is_refused(files):
    with refused("wrong_setting", subject="settings"):
        files.fingerprint(stream=replace(STREAM, settings={}))


def test_an_unknown_way_to_take_errors_is_refused():
    with pytest.raises(SettingsError):
        replace(STREAM, on_error="ignore")


HEALTH = stream_named("service_health")
KEY = {"key": "billing", "state": {"stale": True}}


def pin(lake: Lake, initial_state: str | None, as_of: datetime | None) -> None:
    known = {"initial_state": initial_state, "initial_as_of": as_of}
    record(lake, entry(1, "live", None, None), HEALTH.name, row=known)


def test_an_identity_without_an_initial_state(lake):
    identity = stream_identity(lake, HEALTH)
    assert (identity.stream, identity.source) == (HEALTH.name, HEALTH.source)
    assert (identity.output_mode, identity.time_column) == ("append", "event_time")
    assert identity.delay_us * MICROSECOND == HEALTH.watermark_delay
    assert "stale: boolean" in identity.state_schema
    assert identity.code == code_fingerprint(HEALTH, None)
    assert identity.since_us is None
    assert stream_identity(lake, stream_named("user_counts")).output_mode == "update"


def test_a_fold_in_processing_time_goes_by_ingestion(lake):
    settings = {**HEALTH.settings, "time": "processing"}
    stream = replace(HEALTH, settings=settings, watermark_delay=timedelta(0))
    assert stream_identity(lake, stream).time_column == "ingested_at"


def write_initial_table(lake: Lake, *rows: Row) -> None:
    write_table(lake, rows_table(*rows), mode="overwrite")


@pytest.mark.parametrize("is_table", [True, False])
def test_the_initial_state_is_in_the_identity(lake, is_table):
    if is_table:
        write_initial_table(lake, Row("a"), Row("b"))
    else:
        write_file(lake, document(KEY))
    initial_state = read_fingerprint(lake, HEALTH.name)
    identity = stream_identity(lake, HEALTH)
    assert identity.since_us == AS_OF_US
    assert identity.code == code_fingerprint(HEALTH, initial_state)
    pin(lake, initial_state, AS_OF)
    assert stream_identity(lake, HEALTH) == identity


def test_an_initial_state_that_was_replaced_has_its_own_instant(lake):
    pin(lake, "sha256:another", EPOCH)
    write_file(lake, document(KEY))
    assert stream_identity(lake, HEALTH).since_us == AS_OF_US
