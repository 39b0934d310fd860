"""All services together: up in order, restarted by policy, watched for memory, stopped in order."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.rehearsal.compose_file import Condition, Service
from tests.rehearsal.health import HealthWatch, run_check
from tests.rehearsal.process import Folders, Memory, ProcessTable, ServiceProcess
from tests.rehearsal.restart_policy import restart_delay
from tests.rehearsal.start_order import start_levels, stop_levels

SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_BETWEEN_SAMPLES = 2.0
LOG_TAIL = 30

Say = Callable[[str], None]


class ServiceError(Exception):
    """A service did not start, or did not become healthy; the message has the end of its log."""


@dataclass
class _Life:
    """What is known of a service since it was started by hand."""

    process: ServiceProcess
    health: HealthWatch | None
    restarts: int = 0
    delay: float = 0.0
    starts_at: float | None = None  # when its next start is due, once it has ended
    ended: bool = False  # for good: by its policy, or as it was stopped


@dataclass
class Peak:
    """The most memory that was seen of a service, and when it was restarted by its policy."""

    memory: Memory = field(default_factory=Memory)
    restarts: int = 0


class Services:
    """The services of a file, as processes; `environment` is what all have that the file is silent on."""

    def __init__(
        self,
        services: Mapping[str, Service],
        environments: Mapping[str, Mapping[str, str]],
        folders: Folders,
        say: Say,
    ) -> None:
        self.services = services
        self.peaks = {name: Peak() for name in services}
        self._environments = environments
        self._folders = folders
        self._say = say
        self._lives: dict[str, _Life] = {}
        # Held while lives change: the supervisor's thread and the rehearsal's both change them.
        self._lock = threading.RLock()
        self._ended = threading.Event()
        start_levels(services)
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()

    def up(self) -> None:
        """Start what does not run, each when its dependencies allow, and wait until all are healthy.

        Raises ServiceError when one ends, or stays unhealthy, that another or we wait for.
        """
        for level in start_levels(self.services):
            waiting = [name for name in level if not self._is_running(name)]
            while waiting:
                ready = [name for name in waiting if self._can_start(name)]
                for name in ready:
                    self.start(name)
                waiting = [name for name in waiting if name not in ready]
                time.sleep(SECONDS_BETWEEN_LOOKS)
        self.wait_until_all_up()

    def wait_until_all_up(self) -> None:
        for name in self.services:
            self.wait_until_up(name)

    def start(self, name: str) -> None:
        """Start one service, whatever it depends on."""
        with self._lock:
            self._lives[name] = self._new_life(name)

    def stop(self, name: str, patience: float = math.inf) -> None:
        """Ask with its stop signal, and kill what has not ended after its grace, or `patience`."""
        with self._lock:
            life = self._retired(name)
        if life is None:
            return
        grace = min(self.services[name].stop_grace, patience)
        life.process.ask_to_stop()
        if not life.process.wait(grace):
            self._say(f"{name} has not ended within {grace:.0f} s: killed")
        life.process.kill()

    def down(self, patience: float = math.inf) -> None:
        """Stop all, what others depend on after these; those of a level at once."""
        for level in stop_levels(self.services, self._lives):
            threads = [threading.Thread(target=self.stop, args=(name, patience)) for name in level]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def kill_all(self) -> None:
        """As when the machine loses its power: nothing is asked, nothing is waited for."""
        with self._lock:
            lives = [self._retired(name) for name in self._lives]
        threads = [threading.Thread(target=life.process.kill) for life in lives if life]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def end(self) -> None:
        """No supervision any more: after this, nothing can be started."""
        self._ended.set()
        self._supervisor.join()
        self.kill_all()

    def process(self, name: str) -> ServiceProcess:
        return self._lives[name].process

    def log_tail(self, name: str) -> str:
        lines = self._folders.log(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL:])

    def wait_until_up(self, name: str) -> None:
        """Until its check has passed since its last start, or it has completed if others wait so."""
        if self._must_complete(name):
            condition: Condition = "service_completed_successfully"
        else:
            condition = "service_healthy" if self.services[name].health else "service_started"
        while not self._meets(name, condition):
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _can_start(self, name: str) -> bool:
        return all(
            self._meets(other, condition)
            for other, condition in self.services[name].depends_on.items()
        )

    def _meets(self, name: str, condition: Condition) -> bool:
        """Whether it does now; ServiceError when it never will."""
        with self._lock:
            life = self._lives[name]
            code = life.process.exit_code()
            if condition == "service_completed_successfully":
                if life.ended and code:
                    raise self._error(name, f"ended with exit code {code}")
                return code == 0
            if life.ended and not self._must_complete(name):
                raise self._error(name, f"ended with exit code {code}")
            if condition == "service_started" or life.health is None:
                return True
            if life.health.status == "unhealthy":
                raise self._error(name, "is unhealthy")
            return life.health.status == "healthy"

    def _must_complete(self, name: str) -> bool:
        """Whether it is a step that others wait for, and no service that goes on running."""
        return any(
            service.depends_on.get(name) == "service_completed_successfully"
            for service in self.services.values()
        )

    def _error(self, name: str, what: str) -> ServiceError:
        log = self._folders.log(name)
        return ServiceError(f"{name} {what}. The end of {log}:\n{self.log_tail(name)}")

    def _is_running(self, name: str) -> bool:
        with self._lock:
            life = self._lives.get(name)
            return life is not None and not life.ended and life.process.exit_code() is None

    def _retired(self, name: str) -> _Life | None:
        """The life of a service whose end is wanted from now on; None when it has none."""
        life = self._lives.get(name)
        if life is not None:
            life.ended = True
            if life.health is not None:
                life.health.end()
        return life

    def _new_life(self, name: str) -> _Life:
        service, environment = self.services[name], self._environments[name]
        process = ServiceProcess(service, environment, self._folders)
        check = service.health
        if check is None:
            return _Life(process, None)
        log, folder = self._health_log(name), service.working_dir
        return _Life(
            process, HealthWatch(check, lambda: run_check(check, environment, folder, log))
        )

    def _health_log(self, name: str) -> Path:
        return self._folders.log(f"{name}-health")

    def _supervise(self) -> None:
        sampled_at = 0.0
        while not self._ended.wait(SECONDS_BETWEEN_LOOKS):
            now = time.monotonic()
            with self._lock:
                for name, life in list(self._lives.items()):
                    if not life.ended:
                        self._look_after(name, life, now)
                processes = [life.process for life in self._lives.values() if not life.ended]
            if now - sampled_at >= SECONDS_BETWEEN_SAMPLES:
                self._sample(processes)
                sampled_at = now

    def _look_after(self, name: str, life: _Life, now: float) -> None:
        """Start it again when it has ended by itself and its policy says so."""
        code = life.process.exit_code()
        if code is None:
            return
        if life.starts_at is None:
            policy, ran = self.services[name].restart, now - life.process.started
            delay = restart_delay(policy, code, life.restarts, life.delay, ran)
            life.process.kill()
            if delay is None:
                life.ended = True
                return
            life.delay, life.starts_at = delay, now + delay
        if now >= life.starts_at:
            if life.health is not None:
                life.health.end()
            self._say(f"{name} ended with {code}: restarted, as `restart:` says")
            self.peaks[name].restarts += 1
            reborn = self._new_life(name)
            reborn.restarts, reborn.delay = life.restarts + 1, life.delay
            self._lives[name] = reborn

    def _sample(self, processes: Sequence[ServiceProcess]) -> None:
        table = ProcessTable()
        for process in processes:
            peak, seen = self.peaks[process.service.name], process.memory(table)
            peak.memory = max(peak.memory, seen, key=lambda memory: memory.total)
