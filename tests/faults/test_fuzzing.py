"""What comes of files with changed bytes: rows, or refusals of ours, and never much memory."""

import json
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.ingest.formats import open_rows
from include.ingest.parse_files import ACCEPTED, outcomes_of_content
from tests.examples import examples
from tests.faults.fuzzing import (
    FILES,
    INGESTED_US,
    MOST_MEMORY,
    ROWS,
    SOURCE,
    changed_files,
    read_file,
)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_nobody_changed_gives_all_its_rows(name):
    read = read_file(name, FILES[name])
    assert (read.accepted, read.refused) == (ROWS, 0)
    if name.endswith(".avro"):
        assert read_file(name, FILES[name], replace(SOURCE, max_file_bytes=100)).is_refused_whole


@examples(8_000)
@given(changed_files())
def test_no_bytes_of_a_file_end_a_run(changed):
    name, content = changed
    assert read_file(name, content).peak_bytes < MOST_MEMORY


@examples(800)
@given(st.integers(0, ROWS - 1), st.text())
def test_whatever_a_line_is_the_others_are_taken(number, text):
    lines = FILES["lines.jsonl"].decode().splitlines()
    lines[number] = json.dumps({"it": text}) + text.replace("\n", "").replace("\0", "")
    content = "\n".join(lines).encode("utf-8", "replace")
    opened = partial(open_rows, "a.jsonl", content, SOURCE)
    found = outcomes_of_content(opened, SOURCE, "a.jsonl", INGESTED_US)
    taken = {outcome["value_number"] for outcome in found if outcome["kind"] == ACCEPTED}
    assert taken == set(range(ROWS)) - {number}
