"""The rehearsal of docker-compose.yaml: start order, restarts, health, and what it leaves out."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from include.lake.process_tree import wait_until
from include.settings import PROJECT
from tests.rehearsal.compose_file import HealthCheck, Service
from tests.rehearsal.interpolation import ComposeError
from tests.rehearsal.process import Folders
from tests.rehearsal.restart_policy import FIRST_DELAY, LONGEST_DELAY, STARTED_WELL, restart_delay
from tests.rehearsal.services import ServiceError, Services
from tests.rehearsal.start_order import start_levels, stop_levels

pytestmark = pytest.mark.slow

PATIENCE = 30.0


def depending(**dependencies: str) -> dict[str, Service]:
    return {
        name: Service(name=name, depends_on=dict.fromkeys(others.split(), "service_started"))
        for name, others in dependencies.items()
    }


def test_services_start_after_what_they_depend_on_and_stop_before():
    services = depending(db="", init="db", web="db init", job="web", other="")
    assert start_levels(services) == [["db", "other"], ["init"], ["web"], ["job"]]
    assert stop_levels(services, ["db", "web", "job"]) == [["job"], ["web"], ["db"]]


def test_a_circle_is_named():
    with pytest.raises(ComposeError, match="circle: a -> b -> c -> a"):
        start_levels(depending(a="b", b="c", c="a", d="a", e=""))


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("no", 1, False),
        ("always", 0, True),
        ("always", 1, True),
        ("unless-stopped", 137, True),
        ("on-failure", 0, False),
        ("on-failure", 1, True),
        ("on-failure:3", 1, True),
        ("on-failure:2", 1, False),
    ],
)
def test_what_ended_by_itself_starts_again_as_its_policy_says(policy, code, again):
    delay = restart_delay(policy, code, restarts=2, last_delay=0.2, ran_seconds=1)
    assert (delay is not None) == again


def test_the_delay_doubles_up_to_a_minute_until_a_start_has_gone_well():
    delays = [FIRST_DELAY]
    for _ in range(12):
        delays.append(restart_delay("always", 1, len(delays), delays[-1], ran_seconds=1))
    assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
    assert delays[-2:] == [LONGEST_DELAY, LONGEST_DELAY]
    assert restart_delay("always", 1, 12, LONGEST_DELAY, STARTED_WELL) == FIRST_DELAY


def python(name: str, script: str, **options: object) -> Service:
    return Service(name=name, command=(sys.executable, "-c", script), working_dir="/", **options)


def checked(test: str, **options: object) -> HealthCheck:
    command = (sys.executable, "-c", test)
    return HealthCheck(command=command, **{"interval": 0.05, "retries": 3} | options)


@pytest.fixture
def start(tmp_path):
    """Services of these descriptions, not started yet; what was started ends with the test."""
    made = []

    def make(*described: Service) -> Services:
        folders = Folders(tmp_path)
        folders.make()
        services = {service.name: service for service in described}
        environments = {
            name: {"PATH": os.environ["PATH"], **s.environment} for name, s in services.items()
        }
        made.append(Services(services, environments, folders, lambda line: None))
        return made[-1]

    yield make
    for services in made:
        services.end()


FOREVER = "import time; time.sleep(600)"


def test_a_service_starts_when_its_dependencies_are_healthy_and_completed(start, tmp_path):
    ready, order = tmp_path / "ready", tmp_path / "order"
    note = f"open({str(order)!r}, 'a').write"
    services = start(
        python(
            "db",
            f"{note}('db '); import pathlib; pathlib.Path({str(ready)!r}).touch(); {FOREVER}",
            health=checked(
                f"import os; os.stat({str(ready)!r})", start_period=60, start_interval=0.05
            ),
        ),
        python("init", f"{note}('init ')", depends_on={"db": "service_healthy"}),
        python(
            "web",
            f"{note}('web'); {FOREVER}",
            depends_on={"init": "service_completed_successfully"},
            # A start that takes long is no failure.
            health=checked(
                f"assert 'web' in open({str(order)!r}).read()", start_period=60, start_interval=0.05
            ),
        ),
    )
    services.up()
    assert order.read_text() == "db init web"
    services.up()  # what runs is left alone; a step that had completed is made again
    assert order.read_text() == "db init webinit "


def test_a_dependency_that_failed_is_an_error_with_the_end_of_its_log(start):
    services = start(
        python("init", "import sys; sys.exit('no such database')"),
        python("web", FOREVER, depends_on={"init": "service_completed_successfully"}),
    )
    with pytest.raises(ServiceError, match=r"(?s)init ended with exit code 1\..*no such database"):
        services.up()


def test_a_service_that_stays_unhealthy_is_an_error_with_the_end_of_its_log(start):
    services = start(
        python("web", f"print('port is taken', flush=True); {FOREVER}", health=checked("1 / 0"))
    )
    with pytest.raises(ServiceError, match="web is unhealthy"):
        services.up()
    assert wait_until(lambda: "port is taken" in services.log_tail("web"), PATIENCE)


def test_a_check_that_hangs_counts_as_failed(start):
    services = start(python("web", FOREVER, health=checked(FOREVER, timeout=0.2, retries=1)))
    with pytest.raises(ServiceError, match="web is unhealthy"):
        services.up()


def test_what_is_killed_starts_again_and_what_is_stopped_does_not(start):
    services = start(python("web", FOREVER, restart="unless-stopped"))
    services.up()
    first = services.process("web").main_pid()
    services.process("web").kill_main()
    assert wait_until(lambda: services.peaks["web"].restarts == 1, PATIENCE)
    second = services.process("web").main_pid()
    assert second != first
    services.stop("web")
    assert services.process("web").exit_code() == 128 + signal.SIGTERM
    assert services.peaks["web"].restarts == 1


def test_a_service_is_asked_with_its_signal_and_killed_after_its_grace(start):
    polite = "import signal, sys, time\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n"
    deaf = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    health = checked("import os; os.stat('/proc')")
    wait = "print('ready', flush=True)\ntime.sleep(600)"
    services = start(
        python("polite", polite + wait, stop_signal="SIGINT", stop_grace=PATIENCE, health=health),
        python("deaf", deaf + wait, stop_grace=0.2),
    )
    services.up()
    for name in ("polite", "deaf"):
        assert wait_until(lambda name=name: "ready" in services.log_tail(name), PATIENCE)
    services.down()
    assert services.process("polite").exit_code() == 7
    assert services.process("deaf").exit_code() == 128 + signal.SIGKILL


ORPHAN = f"""
import subprocess, sys
child = [sys.executable, "-c", {FOREVER!r}]
print(subprocess.Popen(child, start_new_session=True).pid, flush=True)
"""


def is_alive(pid: int) -> bool:
    try:
        # A zombie still has its number, and no command line.
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="processes are adopted on Linux only")
@pytest.mark.parametrize("end", ["main ends", "killed", "rehearsal is gone"])
def test_nothing_of_a_service_outlives_it(tmp_path, end):
    pid_file = tmp_path / "pid"
    script = ORPHAN if end == "main ends" else ORPHAN + FOREVER
    init = [sys.executable, "-m", "tests.rehearsal.container_init", str(pid_file), "/"]
    process = subprocess.Popen(
        [*init, sys.executable, "-c", script],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    orphan = int(process.stdout.readline())
    if end == "killed":
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
    if end == "rehearsal is gone":
        process.stdin.close()
    expected = 0 if end == "main ends" else 128 + signal.SIGKILL
    assert process.wait(PATIENCE) == expected
    assert not is_alive(orphan)


def test_a_check_whose_program_is_missing_counts_as_failed_and_says_so(start, tmp_path):
    missing = HealthCheck(command=("no-such-program",), interval=0.05, retries=2)
    services = start(python("web", FOREVER, health=missing))
    with pytest.raises(ServiceError, match="web is unhealthy"):
        services.up()
    assert "no-such-program: No such file" in Folders(tmp_path).log("web-health").read_text()


def test_the_peak_of_memory_counts_a_service_s_children(start):
    script = f"held = b'x' * 50_000_000\nimport subprocess, sys\nsubprocess.run([sys.executable, '-c', 'held = b\"x\" * 70_000_000; {FOREVER}'])"
    services = start(python("web", script))
    services.up()
    assert wait_until(lambda: services.peaks["web"].memory.other > 120_000_000, PATIENCE)
    assert services.peaks["web"].memory.java == 0
