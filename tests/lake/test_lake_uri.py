"""The lake's URI: Spark takes it as it is, and Arrow by its own name for the scheme."""

import pytest

from include.lake.paths import files_of, made_lake, open_lake
from include.lake.s3 import arrow_uri
from tests.refused import refused


@pytest.mark.parametrize(
    ("uri", "arrows"),
    [
        ("s3a://bucket/lake", "s3://bucket/lake?region=eu-central-1"),
        ("s3://bucket/lake", "s3://bucket/lake?region=eu-central-1"),
        ("abfss://box@account.dfs.core.windows.net/lake",) * 2,
        ("gs://bucket/lake",) * 2,
        ("hdfs://name:8020/lake",) * 2,
        ("file:///mnt/lake",) * 2,
    ],
)
def test_only_s3_has_another_name_for_arrow(uri, arrows, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert arrow_uri(uri) == arrows


def test_a_lake_on_s3_is_opened_without_asking_anyone(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    files = files_of("s3a://bucket/lake/tables/user_counts")
    assert files.base_path == "bucket/lake/tables/user_counts/"


def test_a_folder_may_be_given_as_a_uri(tmp_path):
    (tmp_path / "landing").mkdir()
    lake = open_lake(f"file://{tmp_path}")
    assert lake.root == str(tmp_path)  # Delta and Hadoop do not spell such a URI alike
    assert lake.path_in_filesystem(lake.landing("x")) == f"{tmp_path}/landing/x"


@pytest.mark.parametrize("uri", ["nope://bucket/lake", "wasbs://box@account/lake"])
def test_a_scheme_that_nobody_knows_is_one_line(uri):
    with refused("unreadable_lake", subject=uri) as error:
        open_lake(uri)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("letter", [*"%[\\]^|\n\t\x1b\x7f", "\udcff"])
def test_a_folder_that_no_table_can_be_written_to_is_refused(tmp_path, letter):
    folder = tmp_path / f"a{letter}41b"
    folder.mkdir()
    with refused("wrong_lake", subject=str(folder)) as error:
        open_lake(str(folder))
    assert str(error.value).isprintable()


@pytest.mark.parametrize("make", [open_lake, made_lake])
@pytest.mark.parametrize(
    "path",
    ["", "/lake", "b/a b", "b/a%20b", "b/a#b", "b/a?b", "b/\u00e4", "b//a", "b/a[1]", "b/a\n"],
)
def test_a_place_on_s3_that_not_all_who_open_it_find_is_refused(monkeypatch, make, path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody is asked
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with refused("wrong_lake", subject=f"s3a://{path}") as error:
        make(f"s3a://{path}")
    assert str(error.value).isprintable()
