"""Delta's log, read line by line although rows may have odd characters."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from include.lake.delta_log import read_actions
from include.plans.waiting_rows import _has_data

# What str.splitlines() takes for ends of lines; JSON leaves most of them as they are.
LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r"]


@pytest.mark.parametrize("odd", LINE_ENDS)
def test_a_row_with_an_odd_line_end_does_not_cut_an_action(lake, odd):
    path = lake.bronze("user_events")
    write_deltalake(path, pa.table({"user_id": [f"ann{odd}x"]}))
    (add,) = [action["add"] for action in read_actions(lake, path, 0) if "add" in action]
    assert odd in add["stats"] or "\\u" in add["stats"] or "\\r" in add["stats"]
    assert _has_data(lake, path, 0)


def test_a_commit_that_was_cleaned_up_is_not_found(lake):
    with pytest.raises(FileNotFoundError):
        read_actions(lake, lake.bronze("user_events"), 7)
