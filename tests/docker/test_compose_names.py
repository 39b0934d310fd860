"""Every path and setting that docker-compose.yaml names is really there."""

import re
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.compose import AIRFLOW, ROOT, SERVICES, SPARK_CONF, strings

IN_IMAGE = "/opt/stateful-lake"
MADE_AT_START = {f"{IN_IMAGE}/.airflow", f"{IN_IMAGE}/.airflow/passwords.json"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_path_exists(name):
    paths = {
        match
        for text in strings(SERVICES[name])
        for match in re.findall(rf"{IN_IMAGE}[\w/.-]*", text)
    }
    for path in paths - MADE_AT_START:
        assert (ROOT / path.removeprefix(IN_IMAGE).lstrip("/")).exists(), path


def test_airflow_knows_the_settings():
    from airflow.configuration import retrieve_configuration_description

    known = {
        f"AIRFLOW__{section}__{option}".upper()
        for section, described in retrieve_configuration_description().items()
        for option in described["options"]
    }
    names = {name for each in AIRFLOW for name in SERVICES[each]["environment"]}
    assert {name for name in names if name.startswith("AIRFLOW__")} <= known


def spark_jars() -> Path:
    return Path(str(find_spec("pyspark").origin)).parent / "jars"


def test_spark_knows_the_settings():
    # What our own code reads, and what is Spark's own.
    ours = "".join(file.read_text() for file in (ROOT / "include").glob("*.py")).encode()
    launcher = next(spark_jars().parent.glob("bin/load-spark-env.sh")).read_bytes()
    classes = b"".join(
        jar.read(entry)
        for file in spark_jars().glob("spark-[clu]*.jar")
        if re.match(r"spark-(core|launcher|common-utils)", file.name)
        for jar in [ZipFile(file)]
        for entry in jar.namelist()
        if entry.endswith(".class")
    )
    names = {name for service in SERVICES.values() for name in service["environment"]}
    for name in {name for name in names if name.startswith("SPARK_")}:
        assert name.encode() in ours + launcher + classes, name
    for name in SPARK_CONF:
        assert name.encode() in classes, name
