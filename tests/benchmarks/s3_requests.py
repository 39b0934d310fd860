"""Requests that runs make of a store, by kind, and how they grow with the history of the lake.

    python -m tests.benchmarks.s3_requests --ingests 60 --drains 4

One file of 50 events lands before each run of ingestion. After every so many of these comes a run
of the stream, a process with a JVM of its own.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from include.ingest.ingest import ingest
from include.job import recorded_run
from include.lake.lease import hold_lease
from include.lake.paths import Lake, made_lake
from include.registry import source_named, stream_named
from include.spark.submit import job_environment, submit_command
from tests.e2e.object_store import BUCKET, ObjectStore, prepared, running_store
from tests.landed_files import signal

SOURCE, STREAM = source_named("signals"), stream_named("device_signals")
EVENTS = 50


def ingest_file(lake: Lake, number: int) -> None:
    name = lake.path_in_filesystem(f"{lake.landing(SOURCE.name)}/{number:06}.jsonl")
    lines = [signal(number * EVENTS + second) for second in range(EVENTS)]
    with lake.filesystem.open_output_stream(name) as file:
        file.write("\n".join(lines).encode())
    with (
        hold_lease(lake, f"ingest-{SOURCE.name}"),
        recorded_run(lake, "ingest_source", SOURCE.name, None) as record,
    ):
        ingest(lake, SOURCE, record)


def drain(lake: Lake) -> None:
    command = submit_command("run_stream", ["--stream", STREAM.name, "--lake", lake.root], STREAM)
    quiet = {"SPARK_LOG_LEVEL": "error"}
    subprocess.run(command, env=os.environ | job_environment() | quiet, check=True)


def counted(store: ObjectStore, run: Callable[[], None]) -> Counter[str]:
    before = store.requests()
    run()
    return store.requests() - before


def tell(what: str, number: int, requests: Counter[str]) -> None:
    told = {
        "run": what,
        "number": number,
        "all": requests.total(),
        **dict(sorted(requests.items())),
    }
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stdout.flush()


def measure(store: ObjectStore, ingests: int, drains: int) -> None:
    os.environ.update(store.environment)
    lake = made_lake(f"s3a://{BUCKET}/{uuid4().hex}")
    for number in range(ingests):
        requests = counted(store, lambda number=number: ingest_file(lake, number))
        tell("ingest", number + 1, requests)
        if drains and (number + 1) % max(ingests // drains, 1) == 0:
            tell("run_stream", number + 1, counted(store, lambda: drain(lake)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ingests", type=int, default=60)
    parser.add_argument("--drains", type=int, default=4)
    given = parser.parse_args()
    if given.drains:
        prepared()
    with TemporaryDirectory() as folder, running_store(Path(folder, "s3")) as store:
        measure(store, given.ingests, given.drains)


if __name__ == "__main__":
    main()
