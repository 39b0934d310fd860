"""Is a service healthy: its own check, as often and as long as the file says."""

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from tests.rehearsal.compose_file import HealthCheck

Health = Literal["starting", "healthy", "unhealthy"]


class HealthWatch:
    """Checks in a thread of its own until the service is healthy, or is not and stays so."""

    def __init__(self, check: HealthCheck, probe: Callable[[], bool]) -> None:
        self.status: Health = "starting"
        self._check = check
        self._probe = probe
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        started, failures = time.monotonic(), 0
        while self.status == "starting" and not self._ended.is_set():
            is_new = time.monotonic() - started < self._check.start_period
            if self._probe():
                self.status = "healthy"
                return
            # A service that is still coming up may fail as often as it likes.
            failures += not is_new
            if failures >= self._check.retries:
                self.status = "unhealthy"
                return
            self._ended.wait(self._check.start_interval if is_new else self._check.interval)


def run_check(
    check: HealthCheck, environment: Mapping[str, str], folder: str | None, log: Path
) -> bool:
    """Whether the check's command ends with 0 in time; what it says goes to `log`."""
    with log.open("ab") as output:
        try:
            done = subprocess.run(
                check.command,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=check.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        except OSError as error:
            output.write(f"{check.command[0]}: {error.strerror}\n".encode())
            return False
    return done.returncode == 0
