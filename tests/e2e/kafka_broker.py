"""A broker of Kafka for tests, from its jars, which are fetched once as those of the project are.

It is broker and controller at once (KRaft), on ports of this machine alone, in a folder of its own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from include.lake.lease import wait_until
from include.settings import PROJECT
from include.setup.install import VENV_PYTHON
from include.setup.java import Jars, fetch_jars
from include.spark.submit import job_environment
from tests.e2e.make_run import free_ports

BROKER = Jars(
    PROJECT / ".jars-of-tests",
    ["org.apache.kafka:kafka_2.13:4.1.0"],
    Path(__file__).parents[1] / "kafka_jars.sha256",
)
DEADLINE_S = 120.0


def broker_jars() -> Path:
    """The folder with the broker's jars, each as it should be."""
    if BROKER.missing():
        fetch_jars(BROKER, VENV_PYTHON)
    return BROKER.folder


SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.ssl.keystore.location={folder}/keys.p12
listener.name.secure.ssl.keystore.type=PKCS12
listener.name.secure.ssl.keystore.password={password}
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
  required user_me="{password}";
controller.listener.names=CONTROLLER
log.dirs={folder}/data
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.cleaner.backoff.ms=200
log.retention.check.interval.ms=1000
file.delete.delay.ms=100
"""


class Broker:
    """One that can be killed and started again, with what it has stored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, secure, control = free_ports(3)
        self.servers = f"127.0.0.1:{port}"
        # By TLS, for the user `me` with that password.
        self.secure_servers, self.password = f"127.0.0.1:{secure}", uuid4().hex
        self.ca_file = folder / "ca.pem"
        folder.mkdir()
        self._make_keys()
        self._settings = folder / "server.properties"
        known = {"port": port, "secure": secure, "control": control, "folder": folder}
        self._settings.write_text(SETTINGS.format(password=self.password, **known))
        form = ["format", "-t", uuid4().hex[:22], "-c", str(self._settings)]
        subprocess.run(self._java("kafka.tools.StorageTool", *form), check=True, cwd=folder)
        self._process: subprocess.Popen[bytes] | None = None

    def _make_keys(self) -> None:
        store = ["-keystore", "keys.p12", "-storetype", "PKCS12", "-storepass", self.password]
        named = ["-alias", "broker", "-dname", "CN=broker", "-ext", "SAN=ip:127.0.0.1"]
        for command in (
            ["-genkeypair", "-keyalg", "RSA", *named],
            ["-exportcert", "-rfc", "-alias", "broker", "-file", str(self.ca_file)],
        ):
            subprocess.run([_program("keytool"), *command, *store], check=True, cwd=self._folder)

    def _java(self, main: str, *arguments: str) -> list[str]:
        # Of what the broker needs, the resolver leaves out what Spark has.
        (scala,) = Path(job_environment()["SPARK_HOME"], "jars").glob("scala-library-*.jar")
        return [_program("java"), "-Xmx512m", "-cp", f"{broker_jars()}/*:{scala}", main, *arguments]

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._settings)),
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        assert wait_until(self._is_up, DEADLINE_S), (self._folder / "log").read_text()[-3000:]

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
        try:
            return bool(self.admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @cached_property
    def admin(self) -> AdminClient:
        # Its log says of each lost connection that it is lost.
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})


def _program(name: str) -> str:
    """One of Java's."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin" if home else None)
    assert found, f"no {name}"
    return found


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    broker = Broker(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


if __name__ == "__main__":
    sys.stdout.write(f"{broker_jars()}\n")
