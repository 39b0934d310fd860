"""The secrets of the compose cluster, in the file that `docker compose` reads: `make compose-env`.

    python -m include.docker.compose_env [--file .env]

PostgreSQL keeps the password it was first started with: so an existing file is never replaced. Who only
runs containers may have an old Python, and none of our packages: this needs Python 3.9 and nothing else.
"""

from __future__ import annotations  # Python 3.9 cannot evaluate ours

import os
import secrets
import sys
from argparse import ArgumentParser
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

ENV_FILE = Path(__file__).resolve().parents[2] / ".env"
# 64 characters: Airflow signs its tokens with HS512, whose key should have no fewer bytes.
SECRET_BYTES = 48
# The admin's is typed by people at times.
PASSWORD_BYTES = 15


class EnvFileError(Exception):
    """The file cannot be made; the message says why, and what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(description="Write random secrets for docker compose.")
    parser.add_argument("--file", type=Path, default=ENV_FILE, help="default: %(default)s")
    args = parser.parse_args(argv)
    try:
        write(args.file, generated_environment())
    except EnvFileError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(
        f"wrote {args.file}: the login of the UI is admin, with AIRFLOW_ADMIN_PASSWORD in it\n"
    )
    return 0


def generated_environment() -> dict[str, str]:
    """What `docker-compose.yaml` asks for without a default; new random secrets at each call.

    All are safe within a URL, in a shell, and in an env file.
    """
    return {
        "POSTGRES_PASSWORD": secrets.token_urlsafe(SECRET_BYTES),
        # Fernet's own format: 32 bytes in URL-safe base64, padded.
        "AIRFLOW_FERNET_KEY": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW_SECRET_KEY": secrets.token_urlsafe(SECRET_BYTES),
        "AIRFLOW_JWT_SECRET": secrets.token_urlsafe(SECRET_BYTES),
        "SPARK_AUTH_SECRET": secrets.token_urlsafe(SECRET_BYTES),
        "AIRFLOW_ADMIN_PASSWORD": secrets.token_urlsafe(PASSWORD_BYTES),
    }


def write(file: Path, environment: Mapping[str, str]) -> None:
    """Write an env file that only its owner reads; EnvFileError when it is there already."""
    try:
        # The mode from the start: nobody reads it in between.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise EnvFileError(
            f"{file} exists: it is kept, as the database knows its password. To begin anew, with "
            "all of the cluster's data deleted: docker compose down --volumes, and remove the file"
        ) from None
    except OSError as error:
        raise EnvFileError(f"{file} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "w") as output:
        output.writelines(f"{name}={value}\n" for name, value in environment.items())


if __name__ == "__main__":
    sys.exit(main())
