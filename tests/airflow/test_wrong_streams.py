"""A stream's file that cannot be loaded: Airflow says why, and the other Dags go on."""

import sys

import pytest
from airflow.dag_processing.dagbag import DagBag

import include.streams
from include.settings import PROJECT

pytestmark = pytest.mark.airflow


@pytest.fixture
def wrong_file(tmp_path, monkeypatch):
    (tmp_path / "spending.py").write_text("STREAM = Stream()\n")
    monkeypatch.setattr(include.streams, "__path__", [*include.streams.__path__, str(tmp_path)])
    yield
    sys.modules.pop("include.streams.spending", None)


@pytest.mark.usefixtures("wrong_file")
def test_the_dags_of_all_other_streams_go_on_and_the_wrong_one_is_named():
    bag = DagBag(str(PROJECT / "dags"))
    assert {"stream_user_counts", "deploy", "table_maintenance"} <= set(bag.dags)
    ((file, error),) = bag.import_errors.items()
    assert file.endswith("wrong_streams.py")
    assert "include/streams/spending.py" in error
