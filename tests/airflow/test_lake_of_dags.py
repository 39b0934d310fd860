"""Which lake Dags work in: each task in the same, from whatever folder it runs."""

from pathlib import Path

import pytest

from include.settings import default_lake
from tests.dags import ROOT, load_dags

DAGS = ("streams", "state_admin", "table_maintenance")


@pytest.mark.parametrize("named", ["mine", "~/mine"])
@pytest.mark.parametrize("file", DAGS)
def test_tasks_have_a_relative_lake_from_the_folder_that_airflow_was_started_in(
    file, named, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    given = [lake for dag in load_dags(named, f"dags/{file}.py").values() for lake in lakes_of(dag)]
    mine = str(tmp_path / "mine")
    assert given
    assert set(given) == {mine}


def lakes_of(dag) -> list[str]:
    """What the Dag's jobs are told, which run in the project's folder."""
    args = [getattr(task, "arguments", []) for task in dag.tasks]
    return [each[each.index("--lake") + 1] for each in args if "--lake" in each]


@pytest.mark.parametrize("lake", ["/data/lake", "s3a://bucket/lake", "hdfs://name/lake"])
def test_a_lake_with_its_whole_path_is_as_it_was_given(lake, monkeypatch):
    monkeypatch.setenv("LAKE", lake)
    assert default_lake() == lake


def test_without_one_it_is_the_projects(monkeypatch):
    monkeypatch.delenv("LAKE", raising=False)
    assert Path(default_lake()) == ROOT / "lake"
