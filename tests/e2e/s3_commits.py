"""Drivers that commit to one Delta table on S3 at once, killed and paused: is any commit lost, or double?

    python -m tests.e2e.s3_commits --folder /tmp/commits --commits 500 --seconds 600

Half of them commit by delta-rs, half by Spark's log store. Each driver numbers its commits, by app
transactions. Repeated with the same folder it goes on where it was stopped; with 0 seconds it only
looks at what has been committed.
"""

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from include.lake.delta_log import read_actions
from include.lake.paths import made_lake, open_lake
from include.lake.table import transaction
from include.settings import PROJECT
from include.spark.conf import JARS, S3_JARS
from include.spark.submit import job_environment
from tests.e2e.object_store import BUCKET, ObjectStore, prepared, running_store

ROOT = f"s3a://{BUCKET}/commits"
TABLE = f"{ROOT}/tables/x"
BY_DELTA_RS, BY_LOG_STORE = ("rs-0", "rs-1"), ("jvm-0", "jvm-1")
KILLED_SHARE = 0.3  # of what is done to drivers; the others are paused


def drive(name: str, commits: int) -> None:
    """Commit `name`'s transactions that are not in the table yet."""
    number = (DeltaTable(TABLE).transaction_version(name) or 0) + 1
    while number <= commits:
        table = DeltaTable(TABLE)
        if (table.transaction_version(name) or 0) < number:
            once = CommitProperties(app_transactions=[transaction(name, number)])
            try:
                write_deltalake(
                    table, pa.table({"a": [name]}), mode="append", commit_properties=once
                )
            except CommitFailedError:
                continue
        number += 1


def command(name: str, commits: int) -> list[str]:
    if name in BY_DELTA_RS:
        return [
            sys.executable,
            "-m",
            "tests.e2e.s3_commits",
            "--drive",
            name,
            "--commits",
            str(commits),
        ]
    spark = Path(job_environment()["SPARK_HOME"], "jars")
    path = ":".join(f"{folder}/*" for folder in (S3_JARS, JARS, spark))
    source = Path(__file__).with_name("LogDriver.java")
    done = DeltaTable(TABLE).transaction_version(name) or 0
    java = [
        "java",
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        path,
        str(source),
    ]
    return [*java, TABLE, name, str(commits), str(done + 1)]


class Drivers:
    """The processes, and what was done to them."""

    def __init__(self, commits: int, seed: int) -> None:
        self._commits = commits
        self._draw = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command(name, self._commits), cwd=PROJECT, stderr=subprocess.DEVNULL
        )

    def disturb(self, seconds: float) -> None:
        """Until all are done, or for so long."""
        end = time.monotonic() + seconds
        if seconds:
            self._running = {name: self._start(name) for name in (*BY_DELTA_RS, *BY_LOG_STORE)}
        while self._running and time.monotonic() < end:
            name = self._draw.choice(sorted(self._running))
            process = self._running[name]
            try:
                code = process.wait(self._draw.uniform(0.5, 4))
            except subprocess.TimeoutExpired:
                self._disturb(name, process)
                continue
            assert code == 0, f"{name} ended with {code}"
            del self._running[name]

    def _disturb(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if self._draw.random() < KILLED_SHARE:
            process.kill()
            process.wait()
            self._running[name] = self._start(name)
            self.done["killed"] += 1
        else:
            process.send_signal(signal.SIGSTOP)
            time.sleep(self._draw.uniform(0.1, 2))  # the pause itself
            process.send_signal(signal.SIGCONT)
            self.done["paused"] += 1

    def stop(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


def audited() -> Counter[tuple[str, int]]:
    """The number of times that each driver's commits are in the log."""
    lake, found = open_lake(ROOT), Counter[tuple[str, int]]()
    for version in range(DeltaTable(TABLE).version() + 1):
        for action in read_actions(lake, TABLE, version):
            if txn := action.get("txn"):
                found[txn["appId"], txn["version"]] += 1
    return found


def run(folder: Path, commits: int, seconds: float, seed: int) -> int:
    prepared()
    with running_store(folder) as store:
        use(store)
        made_lake(ROOT)
        if not DeltaTable.is_deltatable(TABLE):
            write_deltalake(TABLE, pa.table({"a": ["first"]}))
        drivers = Drivers(commits, seed)
        try:
            drivers.disturb(seconds)
        finally:
            drivers.stop()
        found = audited()
    newest: dict[str, int] = {}
    for name, number in found:
        newest[name] = max(newest.get(name, 0), number)
    wanted = {(name, n + 1) for name, last in newest.items() for n in range(last)}
    lost, double = wanted - set(found), [key for key, times in found.items() if times > 1]
    told = {"commits": newest, "lost": len(lost), "double": len(double), **drivers.done}
    sys.stdout.write(f"{json.dumps(told)}\n")
    is_done = sorted(newest.values()) == [commits] * len((*BY_DELTA_RS, *BY_LOG_STORE))
    return int(bool(lost or double or not is_done))


def use(store: ObjectStore) -> None:
    os.environ.update(store.environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drive", metavar="NAME", help="be that driver")
    given = parser.parse_args()
    if given.drive:
        drive(given.drive, given.commits)
        return
    sys.exit(run(given.folder, given.commits, given.seconds, given.seed))


if __name__ == "__main__":
    main()
