"""What the tests of the rehearsal share."""

import pytest

from include.docker.compose_env import generated_environment, write_new
from tests.rehearsal.cluster import COMPOSE
from tests.rehearsal.compose_file import Service, read_services


@pytest.fixture(scope="session")
def project_services(tmp_path_factory) -> dict[str, Service]:
    env_file = tmp_path_factory.mktemp("env") / ".env"
    variables = generated_environment()
    write_new(env_file, variables)
    return read_services(COMPOSE, variables, env_file)
