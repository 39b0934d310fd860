"""The page of the docs has the rows of the fault model, and no others."""

import re

from include.settings import PROJECT
from tests.fault_model import OUT_OF_SCOPE, Fault
from tests.faults import matrix
from tests.faults.pairs import pair_of
from tests.simulator.actions import ARGUMENTS, FAULTS

ROW = re.compile(r"^\| (.+?) \| (.+?) \| (?:`\./stateful (.+)`)? ?\|$", re.MULTILINE)


def test_the_page_has_these_rows():
    page = (PROJECT / "docs" / "guarantees.md").read_text()
    rows = [row for row in ROW.findall(page) if row[0] != "what happens"]
    assert rows == [each.value for each in Fault]


def test_what_is_tried_is_of_the_model():
    rows = [*matrix.rows(), *map(pair_of, range(1, 20))]
    tried = {row.of_model for row in rows} | set(FAULTS.values())
    assert FAULTS.keys() == ARGUMENTS.keys()
    assert not [each for each in tried if each.outcome == OUT_OF_SCOPE]
