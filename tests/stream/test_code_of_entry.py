"""What of a stream's entry is its code, and what of its file goes with the entry."""

import pytest

from tests.tried_stream import HELPER, IMPORT, SOURCE, changed, files_in


@pytest.fixture
def files(tmp_path, monkeypatch):
    with files_in(tmp_path, monkeypatch) as files:
        yield files


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


SEVERAL = (
    SOURCE
    + """
def other(*, step):
    return define(step=2 * step)

Stream = dict
"""
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("STREAM = Stream(fold=define)", "STREAM = Stream(fold=other)"),
        ("STREAM = alerts(5)", "STREAM = alerts(6)"),
        ("STREAM = alerts(threshold=5)", "STREAM = alerts(threshold=6)"),
        ("STREAM = alerts(lambda key: 1)", "STREAM = alerts(lambda key: 2)"),
        ("STREAM = Stream(**alerts(5))", "STREAM = Stream(**alerts(6))"),
    ],
)
def test_which_fold_the_entry_names_and_what_makes_the_entry_count(files, before, after):
    alerts = "\ndef alerts(threshold):\n    return {}\n"
    found = [files.fingerprint(f"{SEVERAL}{alerts}{entry}\n") for entry in (before, after)]
    assert found[0] != found[1]


MAPPING = """
def migrate_state(old):
    return Total(old["total"])

def halved(old):
    return Total(old["total"] // 2)

Stream = dict
STREAM = Stream(fold=define, migrate_state={})
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("lambda old: Total(old['total'] * 50)", "lambda old: Total(old['total'] * 60)"),
        ("migrate_state", "halved"),
        ("halved", "migrate_state if define else halved"),
    ],
)
def test_what_the_entry_maps_older_states_by_counts(files, before, after):
    found = [files.fingerprint(SOURCE + MAPPING.format(mapping)) for mapping in (before, after)]
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
