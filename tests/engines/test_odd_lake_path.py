"""A stream in a folder whose path has every letter that is not refused."""

import pytest

from include.lake.paths import open_lake
from include.stream.open_stream import open_stream
from include.streams import user_counts
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from spark_jobs.write_savepoint import write_live_savepoint
from tests.bronze import append_commit
from tests.engines.live_lakes import (
    COUNTED,
    COUNTS,
    expected_rows,
    local_run,
    stored_states,
    table_rows,
)

ODD = "a b#c?d'e\"f$g;h{i}j*k&l=m+n~o,p:q<r>s`t(u)!@\u00fc\u65e5\U0001f600\u2028"


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize("letters", [ODD])
def test_a_stream_runs_and_its_state_is_read_in_a_folder_of_odd_letters(spark, tmp_path, letters):
    folder = tmp_path / letters
    folder.mkdir()
    lake, engine = open_lake(str(folder)), SparkEngine(spark)
    for commit in COUNTED:
        append_commit(lake, COUNTS.source, user_counts.FOLD, commit)
        drain(engine, lake, COUNTS)
    local = local_run(user_counts.FOLD, COUNTED)
    assert table_rows(lake, COUNTS, user_counts.FOLD) == expected_rows(local, user_counts.FOLD)
    states = {s.key: (s.state[0], s.changed_at_us) for s in local.states().values()}
    assert stored_states(spark, lake, COUNTS, user_counts.FOLD) == states
    savepoint = write_live_savepoint(engine, open_stream(lake, COUNTS), "some-run", "on_demand")
    assert engine.savepoint_states(lake, savepoint).count() == savepoint.keys == len(states)
    assert [path.name for path in tmp_path.iterdir()] == [letters]
