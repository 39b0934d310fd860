"""Every path, command and setting that docker-compose.yaml names is really there."""

import re
import shutil
import sys
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


@pytest.mark.parametrize("name", SERVICES)
def test_every_command_exists(name):
    service = SERVICES[name]
    commands = [service["command"], service.get("healthcheck", {}).get("test", ())[1:]]
    for program, *words in filter(None, commands):
        if name == "postgres":
            assert program in {"postgres", "pg_isready"}  # of that image
        else:
            assert shutil.which(program, path=str(Path(sys.executable).parent)), program
        if program == "python":
            assert words[0] == "-m"
            assert find_spec(words[1]), words
        if program == "spark-class":
            known = spark_class(words[0] + "Arguments")
            assert all(word.encode() in known for word in words if word.startswith("--"))


def test_airflow_knows_the_commands_and_settings():
    from airflow.cli.cli_config import core_commands
    from airflow.configuration import retrieve_configuration_description

    commands = {command.name for command in core_commands}
    used = {s["command"][1] for s in SERVICES.values() if s["command"][0] == "airflow"}
    assert used == {"api-server", "scheduler", "dag-processor", "triggerer"} <= commands
    known = {
        f"AIRFLOW__{section}__{option}".upper()
        for section, described in retrieve_configuration_description().items()
        for option in described["options"]
    }
    names = {name for each in AIRFLOW for name in SERVICES[each]["environment"]}
    assert {name for name in names if name.startswith("AIRFLOW__")} <= known


def test_airflow_reports_on_the_components_that_are_asked_for():
    from airflow.api_fastapi.core_api.datamodels.monitor import HealthInfoResponse

    checks = [
        service["healthcheck"]["test"] for service in SERVICES.values() if "healthcheck" in service
    ]
    asked = {check[-1] for check in checks if "/monitor/health" in check[-2]}
    assert asked == HealthInfoResponse.model_fields.keys()


def spark_class(name: str) -> bytes:
    with ZipFile(next(spark_jars().glob("spark-core_*.jar"))) as jar:
        return jar.read(name.replace(".", "/") + ".class")


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
