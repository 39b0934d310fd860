"""Savepoint 0: where it is looked for, the timeouts of its keys, and what pins it."""

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from deltalake import DeltaTable

from include.ingest.initial_state import read_fingerprint, read_initial_state
from include.lake.paths import Lake
from tests.initial_state import (
    AS_OF_TEXT,
    AS_OF_US,
    FIVE_MINUTES,
    FOLD,
    STREAM,
    Row,
    a_key,
    collected,
    document,
    refusal,
    rows_table,
    write_file,
    write_table,
)
from tests.refused import refused


def test_a_stream_without_an_initial_state_has_none(lake):
    assert read_initial_state(lake, STREAM, FOLD) is None
    assert read_fingerprint(lake, STREAM) is None


def test_a_table_and_a_file_are_one_too_many(lake):
    write_table(lake, rows_table(Row()))
    write_file(lake, document())
    assert lake.initial_state_file(STREAM) in refusal(lake)


def test_what_is_neither_a_table_nor_a_file_is_not_passed_over(lake):
    Path(lake.initial_state(STREAM)).mkdir(parents=True)
    assert refusal(lake)
    (Path(lake.initial_state(STREAM)) / "_delta_log").mkdir()
    assert refusal(lake)
    shutil.rmtree(lake.initial_state(STREAM))
    Path(lake.initial_state_file(STREAM)).mkdir()
    assert refusal(lake)


def test_a_key_that_names_no_timeout_gets_the_streams(lake):
    write_file(lake, document(a_key("a", "2026-03-01T00:00:07Z"), a_key("b")))
    initial = read_initial_state(lake, STREAM, FIVE_MINUTES)
    timeouts = [timeout_us - AS_OF_US for _, _, timeout_us in collected(initial)]
    assert timeouts == [6_999_999, 300_000_000]


def test_a_timeout_of_the_stream_that_is_no_span_is_refused_when_it_is_defined():
    with refused("wrong_definition", subject="initial_timeout"):
        replace(FOLD, initial_timeout=timedelta(0))


def test_a_files_fingerprint_is_that_of_its_content(lake):
    keys = [a_key("a"), a_key("b", seen=4)]
    path = write_file(lake, document(*keys))
    fingerprint = read_fingerprint(lake, STREAM)
    assert fingerprint.startswith("sha256:")
    turned = {"keys": [dict(reversed(key.items())) for key in reversed(keys)], "as_of": AS_OF_TEXT}
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(turned, indent=8).encode())
    assert read_fingerprint(lake, STREAM) == fingerprint
    for other in (document(keys[0]), document(*keys, as_of="2026-03-02T00:00:00Z")):
        write_file(lake, other)
        assert read_fingerprint(lake, STREAM) != fingerprint
    path.write_text("{")
    with refused("wrong_initial_state"):
        read_fingerprint(lake, STREAM)


def append(lake: Lake, key: str) -> str:
    """The fingerprint after another commit of rows."""
    write_table(lake, rows_table(Row(key)), mode="append")
    return read_fingerprint(lake, STREAM)


def test_a_tables_fingerprint_names_the_last_change_of_its_rows(lake):
    assert append(lake, "a") == f"{DeltaTable(lake.initial_state(STREAM)).metadata().id}@0"
    second = append(lake, "b")
    table = DeltaTable(lake.initial_state(STREAM))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    assert table.version() > 2
    assert read_fingerprint(lake, STREAM) == second
    table.delete("key = 'b'")
    third = read_fingerprint(lake, STREAM)
    assert third != second
    table.delete()  # all of a file: nothing is added
    assert read_fingerprint(lake, STREAM) not in (second, third)
    shutil.rmtree(lake.initial_state(STREAM))
    assert append(lake, "a").partition("@")[0] != second.partition("@")[0]


def test_commits_that_delta_has_deleted_do_not_change_a_pinned_fingerprint(lake):
    first, pinned = append(lake, "a"), append(lake, "b")
    table = DeltaTable(lake.initial_state(STREAM))
    table.optimize.compact()
    table.create_checkpoint()
    for version in (0, 1):
        (Path(lake.initial_state(STREAM)) / f"_delta_log/{version:020}.json").unlink()
    assert read_fingerprint(lake, STREAM, pinned) == pinned
    assert read_fingerprint(lake, STREAM, first) == first  # nothing is left that says otherwise
    assert read_fingerprint(lake, STREAM) == pinned  # the newest change that there can have been
    table.optimize.compact()
    for other in ("other@1", pinned.replace("@1", "@9"), "sha256:0"):
        assert read_fingerprint(lake, STREAM, other) == pinned
    assert append(lake, "c") not in (first, pinned)
    assert read_fingerprint(lake, STREAM, pinned) != pinned


def test_a_table_is_read_as_it_was_and_after_an_optimize_and_a_vacuum(lake):
    pinned = [append(lake, key) for key in "ab"][-1]
    table = DeltaTable(lake.initial_state(STREAM))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)  # the files of version 1
    initial = read_initial_state(lake, STREAM, FOLD)
    append(lake, "c")
    assert [key for key, _, _ in collected(initial)] == ["a", "b"]
    assert initial.fingerprint == pinned
