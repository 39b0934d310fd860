"""A master and a worker of Spark as on other machines, which do not have the project."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from include.airflow.environment import any_free_port
from include.lake.lease import wait_until
from include.spark.conf import spark_package

DEADLINE_S = 120.0
# What a machine of the cluster does not have from us.
OURS = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_MASTER")


class Cluster(NamedTuple):
    master: str
    work: Path  # of the worker: a folder per application, with what its executors wrote


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """A master and a worker of two cores, in folders of their own."""
    port, page = any_free_port(), any_free_port()
    address, work = f"spark://127.0.0.1:{port}", folder / "work"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = ["worker.Worker", "--host", "127.0.0.1", "--work-dir", str(work)]
    options = ["--cores", "2", "--memory", "1g", "--webui-port", "0", address]
    with ExitStack() as running:
        running.enter_context(daemon(folder / "master", *master, "--webui-port", str(page)))
        assert wait_until(lambda: state_of(page) is not None, DEADLINE_S)
        running.enter_context(daemon(folder / "worker", *worker, *options))
        assert wait_until(lambda: (state_of(page) or {}).get("aliveworkers") == 1, DEADLINE_S)
        yield Cluster(address, work)


@contextmanager
def daemon(folder: Path, name: str, *options: str) -> Iterator[None]:
    """A daemon of Spark's deploy package while the body runs; its log is in `folder`."""
    folder.mkdir()
    environment = {key: value for key, value in os.environ.items() if key not in OURS}
    spark_class = spark_package() / "bin" / "spark-class"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [spark_class, f"org.apache.spark.deploy.{name}", *options],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def state_of(page: int) -> Any:
    """The state of the master as JSON; None until it answers with that.

    The master's server answers before /json/ is one of its pages.
    """
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{page}/json/") as answer:
            return json.load(answer)
    except (URLError, ConnectionError, json.JSONDecodeError):
        return None
