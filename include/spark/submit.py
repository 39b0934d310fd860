"""The start of a job, by a Dag or by hand: its spark-submit command and environment."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TextIO

from include.lake.s3 import is_s3
from include.settings import PROJECT, Stream
from include.spark.conf import (
    YARN,
    check_reachable,
    checked_master,
    conf_on,
    is_local,
    jars,
    job_conf,
    refuse_unfit,
    s3_conf,
    s3_jars,
    spark_home,
    spark_package,
)
from include.text_table import printable

SPARK_SUBMIT = PROJECT / "include" / "bin" / "spark-submit-with-parent"


def job_path(job: str) -> Path:
    """Return the file of `job`, such as `run_stream`."""
    return PROJECT / "spark_jobs" / f"{job}.py"


def default_master() -> str:
    """Return SPARK_MASTER, or all cores of this machine; SettingsError when it is no master."""
    return checked_master(os.environ.get("SPARK_MASTER") or "local[*]")


def submit_command(
    job: str, args: Sequence[str], stream: Stream | None = None, master: str | None = None
) -> list[str]:
    """Return the command line that runs `job`; with a `stream`, under its state settings."""
    where = master or default_master()
    command = [str(SPARK_SUBMIT), "--master", where, "--name", job]
    if shipped := jars_to_ship(args, where):
        command += ["--jars", shipped]
    for name, value in conf_of(args, stream, where).items():
        command += ["--conf", f"{name}={value}"]
    return [*command, str(job_path(job)), *args]


def conf_of(args: Sequence[str], stream: Stream | None, master: str) -> dict[str, str]:
    """Return the Spark settings of the job with these arguments."""
    conf = job_conf(stream) | (s3_conf() if _is_on_s3(args) else {})
    return conf | dict(conf_on(master))


def jars_to_ship(args: Sequence[str], master: str) -> str:
    """Return the jars for executors, as --jars takes them; of a local job those that its class path lacks."""
    of_lake = s3_jars() if _is_on_s3(args) else []
    return ",".join(map(str, of_lake if is_local(master) else [*jars(), *of_lake]))


def _is_on_s3(args: Sequence[str]) -> bool:
    return is_s3(next((root for name, root in pairwise(args) if name == "--lake"), ""))


def shell_command(lake: str) -> list[str]:
    """Return the command of a Python shell over `lake`; `shell_environment` has its session's settings."""
    return [sys.executable, "-i", str(job_path("shell")), "--lake", lake]


def shell_environment(lake: str) -> dict[str, str]:
    """Return the environment of a Spark session that is made without spark-submit: the same options."""
    options = submit_command("shell", ["--lake", lake])[1:-3]
    return job_environment() | {"PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"])}


def job_environment(master: str | None = None) -> dict[str, str]:
    """Return the environment of a job on `master`, to add to the caller's.

    It overrides variables such as SPARK_HOME: a shell that has another Spark in them would break the job.
    """
    refuse_unfit(spark_package())
    where = master or default_master()
    here = is_local(where)
    of_executors = None if here else os.environ.get("SPARK_EXECUTOR_PYTHON")
    package = spark_package()
    environment = {
        # To YARN Spark uploads the archive.
        "SPARK_HOME": str(package if where == YARN else spark_home(package)),
        # Another Python of the workers has no pyarrow. On a cluster it may be in another place.
        "PYSPARK_PYTHON": of_executors or sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(PROJECT),
    }
    if here:
        # Without it Spark looks the host name up, which a laptop off the network cannot. On a cluster
        # executors would look for the driver at that address.
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


LOG_LEVEL, LOG_FILE = "SPARK_LOG_LEVEL", "SPARK_LOG_FILE"
PROGRESS = "STATEFUL_PROGRESS"  # in the environment of a job whose progress a terminal shows
HEAP_FULL = 3  # the exit code of a JVM with ExitOnOutOfMemoryError
# For log4j2.properties: on stderr errors alone, each in a line.
QUIET = {"SPARK_LOG_SHOWN": "error", "SPARK_LOG_TRACE": "none"}
# No log level silences these: a JVM's greeting, and what PySpark prints of each query.
NOISE = re.compile(
    r"\s*$|WARNING: Using incubator modules|(Starting )?Streaming TransformWithStateInPandas Python"
)


def run_job(
    job: str, args: Sequence[str], stream: Stream | None = None, stdout: TextIO | None = None
) -> int:
    """Run a job to its end and return its exit code; its output goes to `stdout`, or ours.

    Without SPARK_LOG_LEVEL only Spark's errors are shown, and the last line of a job that fails names the
    file of its log. SettingsError, before a JVM starts, when the master is none or does not answer.
    """
    master = default_master()
    check_reachable(master)
    command = submit_command(job, args, stream, master)
    environment = os.environ | job_environment(master)
    log = None
    if LOG_LEVEL in environment:
        code = subprocess.run(command, env=environment, stdout=stdout, check=False).returncode
    else:
        with NamedTemporaryFile(prefix=f"{job}-", suffix=".log", delete=False) as made:
            log = Path(made.name)
        code = _run_quietly(command, environment | QUIET | {LOG_FILE: str(log)}, stdout)
    if code == HEAP_FULL or not 0 <= code < 128:
        its_log = f"; its log is {log}" if log else ""
        sys.stderr.write(f"error: {job} has ended abruptly, with exit code {code}{its_log}\n")
    elif log and code != 1:  # nobody has named it
        log.unlink()
    return code


def _run_quietly(command: Sequence[str], environment: dict[str, str], stdout: TextIO | None) -> int:
    with (
        _progress() as show,
        subprocess.Popen(
            command,
            env=environment | ({PROGRESS: "1"} if show else {}),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as job,
    ):
        assert job.stderr is not None
        for line in job.stderr:
            if show and line.startswith(PROGRESS):
                show(printable(line.removeprefix(f"{PROGRESS} ").rstrip("\n")))
            elif not NOISE.match(line):
                sys.stderr.write(printable(line))
    return job.returncode


@contextmanager
def _progress() -> Iterator[Callable[[str], None] | None]:
    """Show texts in a line of the terminal while the body runs; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # not at each parse of the Dags
    from rich.markup import escape

    with Console(stderr=True).status("starting Spark") as status:
        yield lambda text: status.update(escape(text))


def say(line: str) -> None:
    """Print a line, at once even when the output is a pipe."""
    sys.stdout.write(f"{printable(line)}\n")
    sys.stdout.flush()
