"""The folder that jobs are given as SPARK_HOME, and what Python takes from it."""

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from include.spark import conf
from include.spark.conf import spark_home, spark_package
from include.spark.submit import SPARK_SUBMIT, job_environment


def installed_in(folder: Path) -> Path:
    """A package in a folder of Python's path."""
    package = folder / "pyspark"
    for part in ("bin", "jars", "python/lib"):
        (package / part).mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "python/lib/pyspark.zip").touch()
    return package


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A package with an archive, and an empty place for folders of links."""
    monkeypatch.setattr(conf, "JARS", tmp_path / "jars-of-jobs")
    folder = installed_in(tmp_path / "site-packages")
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def test_it_has_all_that_scripts_look_for_and_no_archive(package):
    made = spark_home(package)
    assert {path.name: path.resolve() for path in made.iterdir()} == {
        "bin": package / "bin",
        "jars": package / "jars",
    }
    assert spark_home(package) == made


def test_another_package_leaves_the_links_of_the_first_to_jobs_that_run(
    package, tmp_path, monkeypatch
):
    made = spark_home(package)
    other = installed_in(tmp_path / "other")
    monkeypatch.syspath_prepend(other.parent)
    assert spark_home(other) not in (made, other)
    assert (made / "jars").resolve() == package / "jars"


def test_a_package_that_only_the_caller_s_path_has_is_none_of_a_job(package, tmp_path, monkeypatch):
    other = installed_in(tmp_path / "other")
    monkeypatch.syspath_prepend(other.parent)
    assert spark_package() == other
    monkeypatch.setenv("PYTHONPATH", f"/elsewhere:{other.parent}")
    assert spark_package() == package


def test_a_job_on_yarn_has_the_archive_that_is_uploaded_there():
    assert Path(job_environment("yarn")["SPARK_HOME"]) == spark_package()
    assert (spark_package() / "python/lib/pyspark.zip").is_file()
    for master in ("local[2]", "spark://host:7077"):
        assert not Path(job_environment(master)["SPARK_HOME"], "python").exists()


@pytest.mark.spark
def test_the_driver_of_a_job_imports_the_package_and_no_archive(tmp_path):
    program = tmp_path / "says_where.py"
    program.write_text("import pyspark, py4j\nprint(pyspark.__file__, py4j.__file__)\n")
    ended = subprocess.run(
        [SPARK_SUBMIT, "--master", "local[1]", program],
        env=os.environ | job_environment("local[1]"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{Path(pyspark.__file__)} {spark_package().parent / 'py4j'}" in ended.stdout


@pytest.mark.spark
def test_so_does_a_worker(spark):
    def where(batches):
        import pyarrow as pa
        import pyspark.worker

        for batch in batches:
            yield pa.record_batch({"where": [pyspark.worker.__file__] * batch.num_rows})

    (row,) = spark.range(1).mapInArrow(where, "where string").collect()
    assert Path(row["where"]).is_relative_to(spark_package())
    assert ".zip" not in row["where"]
