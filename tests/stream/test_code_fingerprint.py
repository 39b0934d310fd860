"""A stream's fingerprint, with what counts in it and what does not; and the stream's identity."""

from dataclasses import replace
from datetime import timedelta

import pytest

from include.ingest.initial_state import read_fingerprint
from include.lake.paths import Lake
from include.registry import stream_named
from include.stream import stream_identity as module
from include.stream.open_stream import open_stream
from include.stream.stream_identity import code_fingerprint
from tests.initial_state import AS_OF_US, Row, document, rows_table, write_file, write_table
from tests.stream.entries import entry, record
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


HEALTH = stream_named("service_health")
KEY = {"key": "billing", "state": {"stale": True}}


def pin(lake: Lake, initial_state: str, as_of_us: int) -> None:
    known = {"initial_state": initial_state, "initial_as_of_us": as_of_us}
    record(lake, entry(1, "live", None, None), HEALTH.name, row=known)


def test_a_fold_in_processing_time_goes_by_ingestion(lake):
    settings = {**HEALTH.settings, "time": "processing"}
    stream = replace(HEALTH, settings=settings, watermark_delay=timedelta(0))
    assert open_stream(lake, stream).identity.time_column == "ingested_at"


def write_initial_table(lake: Lake, *rows: Row) -> None:
    write_table(lake, rows_table(*rows), mode="overwrite")


@pytest.mark.parametrize("is_table", [True, False])
def test_the_initial_state_is_in_the_identity(lake, is_table):
    if is_table:
        write_initial_table(lake, Row("a"), Row("b"))
    else:
        write_file(lake, document(KEY))
    initial_state = read_fingerprint(lake, HEALTH.name)
    identity = open_stream(lake, HEALTH).identity
    assert identity.since_us == AS_OF_US
    assert identity.code == code_fingerprint(HEALTH, initial_state)
    pin(lake, initial_state, AS_OF_US)
    assert open_stream(lake, HEALTH).identity == identity


def test_an_initial_state_that_was_replaced_has_its_own_instant(lake):
    pin(lake, "sha256:another", 0)
    write_file(lake, document(KEY))
    assert open_stream(lake, HEALTH).identity.since_us == AS_OF_US


ENTRY = """
from include.settings import Stream
HOURLY = "0 * * * *"
Stream = dict
STREAM = Stream(source="signals", fold=define(step=1), schedule=HOURLY)
"""
CHECKED = """
from include.settings import Check, Stream
HOURLY = "0 * * * *"
Stream = dict
STREAM = Stream(source="signals", fold=define(step=1), checks=(Check(name="above", each_row="total > 3"),))
"""


def test_the_rest_of_the_entry_and_what_it_imports_does_not_count(files):
    with_checks = files.fingerprint(SOURCE + CHECKED)
    assert files.fingerprint(SOURCE + ENTRY) == with_checks
    assert files.fingerprint(SOURCE + changed(CHECKED, "> 3", "> 4")) == with_checks


ELSEWHERE = '"""A title."""\nfrom include.streams.tried_helper import COMMENTS, define'
GIVEN = "Stream = dict\nSTREAM = Stream(fold=define, comments=COMMENTS)"


@pytest.mark.parametrize(
    "source",
    [
        f"{ELSEWHERE}\n{GIVEN}",
        f"{ELSEWHERE} as FOLD\n{GIVEN.replace('define', 'FOLD')}",
        f"{ELSEWHERE}\n{GIVEN.replace('fold=define', '**dict(fold=define)')}",
        f"{ELSEWHERE}\n{GIVEN.replace('Stream', 'alerts')}",
    ],
)
def test_a_fold_that_another_module_of_the_streams_declares_counts(files, source):
    helper = HELPER + changed(SOURCE, IMPORT, "")
    other = changed(helper, "event.value > 0", "event.value >= 0")
    assert files.fingerprint(source, other) != files.fingerprint(source, helper)


ALERTS = """
def other(*, step):
    return define(step=2 * step)

def alerts(threshold):
    return {{}}

Stream = dict
STREAM = {}
"""
MAPPING = """
def migrate_state(old):
    return Total(old["total"])

def halved(old):
    return Total(old["total"] // 2)

Stream = dict
STREAM = Stream(fold=define, migrate_state={})
"""


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (ALERTS, "Stream(fold=define)", "Stream(fold=other)"),
        (ALERTS, "alerts(5)", "alerts(6)"),
        (ALERTS, "alerts(threshold=5)", "alerts(threshold=6)"),
        (ALERTS, "alerts(lambda key: 1)", "alerts(lambda key: 2)"),
        (ALERTS, "Stream(**alerts(5))", "Stream(**alerts(6))"),
        (MAPPING, "lambda old: Total(old['total'] * 50)", "lambda old: Total(old['total'] * 60)"),
        (MAPPING, "migrate_state", "halved"),
        (MAPPING, "halved", "migrate_state if define else halved"),
    ],
)
def test_the_fold_of_the_entry_what_makes_it_and_what_maps_older_states_count(
    files, text, before, after
):
    found = [files.fingerprint(SOURCE + text.format(entry)) for entry in (before, after)]
    assert found[0] != found[1]


@pytest.mark.parametrize("mapping", ["mapped", "migrate_state"])
def test_a_mapping_that_another_module_of_the_streams_has_counts(files, mapping):
    entry = f"Stream = dict\nSTREAM = Stream(fold=define, migrate_state={mapping})\n"
    imports = f"from include.streams.tried_helper import {mapping}\nadded = int.__add__"
    source = changed(SOURCE, IMPORT, imports) + entry
    helper = f"{HELPER}\ndef {mapping}(old):\n    return old['total']\n"
    other = changed(helper, "old['total']", "2 * old['total']")
    assert files.fingerprint(source, other) != files.fingerprint(source, helper)


def test_another_streams_entry_counts_for_who_imports_it(files):
    source = changed(
        SOURCE, IMPORT, "from include.streams.tried_helper import STREAM as OTHER, added"
    )
    other = f"{HELPER}\nStream = dict\nSTREAM = Stream(fold=added, buckets=4)\n"
    assert files.fingerprint(source, other) != files.fingerprint(source, changed(other, "=4", "=5"))
