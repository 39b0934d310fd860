"""Write the secrets of the compose cluster to .env: `make compose-env`.

PostgreSQL keeps the password it was first started with, so an existing file is never replaced. This needs
Python 3.9 and no package, as the machine may have nothing but containers.
"""

import secrets
import sys
from base64 import urlsafe_b64encode
from pathlib import Path

ENV_FILE = Path(__file__).resolve().parents[2] / ".env"
# 64 characters: Airflow signs its tokens with HS512, whose key should have no fewer bytes.
SECRET_BYTES = 48
# The admin's is typed by people at times.
PASSWORD_BYTES = 15


def main(file: Path = ENV_FILE) -> int:
    """Write the file, readable by its owner only; returns 2 when it exists."""
    try:
        file.touch(0o600, exist_ok=False)
    except FileExistsError:
        sys.stderr.write(
            f"error: {file} exists: it is kept, as the database knows its password. To begin anew, with "
            "all of the cluster's data deleted: docker compose down --volumes, and remove the file\n"
        )
        return 2
    environment = generated_environment()
    file.write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
    sys.stdout.write(
        f"wrote {file}: the login of the UI is admin, with AIRFLOW_ADMIN_PASSWORD in it\n"
    )
    return 0


def generated_environment() -> dict[str, str]:
    """New random secrets, safe within a URL, in a shell, and in an env file."""
    names = ("POSTGRES_PASSWORD", "AIRFLOW_SECRET_KEY", "AIRFLOW_JWT_SECRET", "SPARK_AUTH_SECRET")
    return {
        **{name: secrets.token_urlsafe(SECRET_BYTES) for name in names},
        # Fernet's own format: 32 bytes in URL-safe base64, padded.
        "AIRFLOW_FERNET_KEY": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW_ADMIN_PASSWORD": secrets.token_urlsafe(PASSWORD_BYTES),
    }


if __name__ == "__main__":
    sys.exit(main())
