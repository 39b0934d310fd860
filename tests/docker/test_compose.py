"""docker-compose.yaml: valid by the specification, and what each service must have.

That what it starts works together is for tests/e2e/test_compose_processes.py.
"""

import json
import re
import subprocess
import sys
import tomllib
from datetime import timedelta

import pytest

from include.docker.compose_env import generated_environment
from include.registry import all_streams
from include.settings import TABLE_MAINTENANCE
from tests.compose import (
    AIRFLOW,
    COMPOSE,
    ONE_SHOT,
    OUR_IMAGE,
    ROOT,
    SERVICES,
    SPARK,
    SPARK_CONF,
    mebibytes,
    seconds,
    strings,
    variables,
    with_defaults,
)


def test_the_file_is_valid_by_the_specification():
    """By the schema that check-jsonschema has: nothing is fetched."""
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, ROOT / "docker-compose.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name):
    image, _, tag = SERVICES[name]["image"].partition(":")
    if image == OUR_IMAGE:
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        assert tag == version
    else:
        assert re.fullmatch(r"\d+\.\d+(\.\d+)?(-\w+)?", tag), tag


def test_our_image_is_built_once_and_never_pulled():
    built = [service for service in SERVICES.values() if "build" in service]
    assert [service["image"].partition(":")[0] for service in built] == [OUR_IMAGE]
    assert (ROOT / built[0]["build"]["dockerfile"]).is_file()
    ours = [service for service in SERVICES.values() if service["image"].startswith(OUR_IMAGE)]
    assert {service["pull_policy"] for service in ours} == {"never"}


def test_only_the_ui_is_published_and_only_on_loopback():
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"airflow-apiserver": ["127.0.0.1:${AIRFLOW_PORT:-8080}:8080"]}
    assert not [name for name, service in SERVICES.items() if "network_mode" in service]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_limits_few_capabilities_health_checks_and_logs_that_rotate(name):
    service = SERVICES[name]
    assert float(with_defaults(service["cpus"])) > 0
    assert mebibytes(with_defaults(service["mem_limit"])) > 0
    assert {"max-size", "max-file"} <= service["logging"]["options"].keys()
    assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped")
    assert seconds(service["stop_grace_period"]) >= 30

    of_its_entry_point = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert service.get("cap_add", []) == (of_its_entry_point if name == "postgres" else [])
    if name not in ONE_SHOT:
        check = service["healthcheck"]
        assert check["test"][0] == "CMD"  # not CMD-SHELL
        assert {"interval", "timeout", "retries", "start_period"} <= check.keys()


def test_the_scheduler_is_given_time_and_all_it_needs_to_end_its_jobs():
    longest = max([TABLE_MAINTENANCE.timeout, *(stream.timeout for stream in all_streams())])
    grace = seconds(SERVICES["airflow-scheduler"]["stop_grace_period"])
    assert timedelta(seconds=grace) > longest
    # Compose stops in the reverse order of depends_on, and what does not depend, at once.
    needed = {"postgres", "airflow-apiserver", *SPARK}
    assert SERVICES["airflow-scheduler"]["depends_on"].keys() >= needed


def test_what_has_no_default_is_what_make_compose_env_writes():
    required = {(name, message) for name, mark, message in variables(COMPOSE) if mark != ":-"}
    assert required == {(name, "run make compose-env") for name in generated_environment()}
    assert {mark for _, mark, _ in variables(COMPOSE)} == {":-", ":?"}


@pytest.mark.parametrize("name", [*AIRFLOW, "spark-worker-1", "spark-worker-2"])
def test_whoever_opens_a_lake_on_s3_has_its_variables_where_the_user_has_set_them(name):
    passed = COMPOSE["x-object-store"]
    assert "AWS_SECRET_ACCESS_KEY" in passed
    assert set(passed.values()) == {None}
    assert passed.items() <= SERVICES[name]["environment"].items()


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_stands_in_the_file(name):
    secrets = {
        variable: value
        for variable, value in SERVICES[name].get("environment", {}).items()
        if re.search(r"PASSWORD$|SECRET|_KEY$|TOKEN", variable)
    }
    for variable, value in secrets.items():
        # None: passed on from .env or the shell.
        assert value is None or re.fullmatch(r"\$\{\w+:\?[^}]*\}", value), variable
    for text in strings(SERVICES[name]):
        for password in re.findall(r"://\w+:(.*?)@", text):
            assert re.fullmatch(r"\$\{\w+:\?[^}]*\}", password)


def test_all_of_airflow_has_the_same_secrets_and_spark_has_its_own():
    """But for the admin's password, and that where drivers run."""
    assert len({json.dumps(sorted(variables(SERVICES[n]["environment"]))) for n in AIRFLOW}) == 3
    having = {
        name for name in SERVICES if "_SPARK_AUTH_SECRET" in SERVICES[name].get("environment", {})
    }
    assert having == {*SPARK, "airflow-scheduler"}
    assert SPARK_CONF["spark.authenticate"] == "true"
    for name in AIRFLOW:
        shared = COMPOSE["x-airflow-environment"].items()
        assert shared <= SERVICES[name]["environment"].items(), name
    for name in SPARK:
        secrets = {given for given, mark, _ in variables(SERVICES[name]) if mark != ":-"}
        assert secrets == {"SPARK_AUTH_SECRET"}
        # Jobs ship their Python: a worker that had the project would hide it when they did not.
        assert "PYTHONPATH" not in SERVICES[name]["environment"]


def test_as_many_applications_as_tasks_fit_into_the_workers():
    worker = SERVICES["spark-worker-1"]
    environment = {name: with_defaults(value) for name, value in worker["environment"].items()}
    workers = len([name for name in SPARK if "worker" in name])
    applications = int(
        with_defaults(COMPOSE["x-airflow-environment"]["AIRFLOW__CORE__PARALLELISM"])
    )
    cores = workers * int(environment["SPARK_WORKER_CORES"])
    assert applications * int(SPARK_CONF["spark.cores.max"]) <= cores
    # An application has an executor on each worker: its cores are spread out.
    memory = mebibytes(environment["SPARK_WORKER_MEMORY"])
    assert applications * mebibytes(SPARK_CONF["spark.executor.memory"]) <= memory
    daemon = mebibytes(environment["SPARK_DAEMON_MEMORY"])
    assert memory + daemon < mebibytes(with_defaults(worker["mem_limit"]))
