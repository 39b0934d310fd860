"""A power cut after a stream's first run, which had nothing to emit: its table has one commit, and that
is an empty file now."""

import pytest

from include.plans.stream_status import stream_status
from tests.simulator.operations import Operations


@pytest.mark.parametrize("kind", ["counts", "counts_per_key"])
def test_a_finding_says_that_the_log_of_a_new_table_cannot_be_read_and_a_reseed_mends_it(kind):
    do = Operations(kind)
    try:
        do.land_in_time("a", [0], 1)
        do.run(None)
        do.power_cut()  # and everything is looked at
        found = stream_status(do.world.lake, do.stream).findings
        assert [finding.severity for finding in found] == ["error"]
        do.way_out()
        assert stream_status(do.world.lake, do.stream).findings == []
    finally:
        do.close()
