"""`make compose-env`: new secrets once, for their owner alone."""

import os
import re
import subprocess
from pathlib import Path

from cryptography.fernet import Fernet

from include.docker import compose_env
from include.docker.compose_env import generated_environment

ROOT = Path(__file__).resolve().parents[2]


def test_secrets_are_new_each_time_and_safe_wherever_they_are_put():
    environments = [generated_environment() for _ in range(50)]
    values = [value for environment in environments for value in environment.values()]
    assert len(set(values)) == len(values)
    for value in values:
        assert len(value) >= 20
        # No character with a meaning in a URL, a shell, an env file, or to Compose (`$`).
        assert re.fullmatch(r"[\w-]+=?", value, re.ASCII)
    for environment in environments:
        Fernet(environment["AIRFLOW_FERNET_KEY"])


def test_the_file_is_for_its_owner_and_never_replaced(tmp_path, capsys):
    file = tmp_path / ".env"
    before = os.umask(0)
    try:
        assert compose_env.main(file) == 0
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    written = file.read_text()
    names = [line.partition("=")[0] for line in written.splitlines()]
    assert set(names) == generated_environment().keys()
    out = capsys.readouterr().out
    assert not [line for line in written.splitlines() if line.partition("=")[2] in out]

    assert compose_env.main(file) == 2
    said = capsys.readouterr().err
    assert (str(file) in said, said.count("\n")) == (True, 1)
    assert file.read_text() == written


def test_git_leaves_the_file_out():
    ignored = subprocess.run(["git", "check-ignore", "-q", ".env"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
