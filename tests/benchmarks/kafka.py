"""A topic into Delta: ingestion here beside a plain job of Spark, and killed ten times on its way.

    make bench ARGS="--only kafka"
    make bench ARGS="--only kafka --messages 50000 --rounds 1"

A broker on this machine, four partitions, JSON of 90 bytes. Both take all of it into a new table, in
turns, in processes of their own whose start counts; each message must be there once. Spark's job
parses and appends, and no more; ingestion judges each message, keeps what is refused and writes the
clock. Then a lake is filled by a process that is killed before ten of its writes, in batches of a
twentieth, until all is there.
"""

import statistics
import sys
import tempfile
import time
from datetime import timedelta
from math import ceil
from pathlib import Path
from random import Random

import pyarrow as pa
from deltalake import DeltaTable

from include.lake.paths import made_lake
from include.spark.local_jobs import say
from include.spark.submit import submit_command
from tests.benchmarks.price import cost_of
from tests.e2e.kafka_broker import Broker, connector_jars, running_broker
from tests.e2e.kafka_topics import SIGKILLED, Sent, run_killed
from tests.landed_files import signal

PARTITIONS = 4
KILLS = 10
SPARK_JOB = str(Path(__file__).with_name("kafka_to_delta.py"))
HERE, SPARK = "ingestion, processes of one machine", "Spark Structured Streaming, Kafka to Delta"


def measure(folder: Path, messages: int, rounds: int) -> str:
    """Markdown. RuntimeError where a message is not there, or twice."""
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="kafka-") as root,
        running_broker(Path(root) / "broker") as broker,
    ):
        sent = Sent(broker, "signals", PARTITIONS)
        fill(sent, messages)
        seconds: dict[str, list[float]] = {HERE: [], SPARK: []}
        for number in range(rounds):
            seconds[HERE].append(ingest_here(sent, Path(root) / f"here-{number}", messages))
            seconds[SPARK].append(spark_job(broker, sent, Path(root) / f"spark-{number}", messages))
            say(
                f"round {number + 1}: "
                + ", ".join(f"{k} {v[-1]:.1f} s" for k, v in seconds.items())
            )
        killed = drain_killed(sent, Path(root) / "killed", messages)
    return f"{table(seconds, messages)}\n\n{killed}"


def fill(sent: Sent, messages: int) -> None:
    producer = sent.producer(**{"linger.ms": 50, "queue.buffering.max.messages": 200_000})
    for number in range(messages):
        while True:
            try:
                producer.produce(sent.name, signal(number / 100, number % 1000, number))
                break
            except BufferError:
                producer.poll(1)
        producer.poll(0)
    if left := producer.flush():
        raise RuntimeError(f"{left} messages were not sent")


def ingest_here(sent: Sent, folder: Path, messages: int) -> float:
    lake = made_lake(str(folder))
    job = ["-m", "tests.e2e.kafka_ingest", lake.root, sent.broker.servers, sent.name]
    wall = cost_of([sys.executable, *job]).wall
    check(lake.bronze("signals"), messages)
    return wall


def spark_job(broker: Broker, sent: Sent, folder: Path, messages: int) -> float:
    *options, _ = submit_command("kafka_to_delta", [], master="local[2]")
    jars = ["--jars", ",".join(map(str, connector_jars()))]
    table, checkpoint = str(folder / "table"), str(folder / "checkpoint")
    given = [SPARK_JOB, broker.servers, sent.name, table, checkpoint]
    wall = cost_of([*options, *jars, *given]).wall
    check(table, messages)
    return wall


def check(path: str, messages: int) -> None:
    """Each message has a number for its value."""
    values = DeltaTable(path).to_pyarrow_table(columns=["value"])["value"].sort()
    if not values.equals(pa.chunked_array([pa.array(range(messages), values.type)])):
        raise RuntimeError(f"{path}: {len(values):,} rows, which are not the {messages:,} sent")


def drain_killed(sent: Sent, folder: Path, messages: int) -> str:
    """Killed before writes that are drawn by lot, each some batches on."""
    lake, random, began = made_lake(str(folder)), Random(1), time.monotonic()
    batch, kills = str(ceil(messages / 20)), 0
    for _ in range(KILLS):
        where = str(random.randrange(10))
        kills += run_killed(lake, sent, "--write", where, "--batch", batch) == SIGKILLED
    run_killed(lake, sent, "--batch", batch)
    check(lake.bronze("signals"), messages)
    took = timedelta(seconds=round(time.monotonic() - began))
    return f"{messages:,} messages, killed {kills} times: each there once, after {took}"


def table(seconds: dict[str, list[float]], messages: int) -> str:
    lines = ["| a topic into Delta by | events a second | wall s | spread |", "|---|---|---|---|"]
    for by, walls in seconds.items():
        median = statistics.median(walls)
        spread = f"{min(walls):.1f} - {max(walls):.1f}"
        lines.append(f"| {by} | {messages / median:,.0f} | {median:.1f} | {spread} |")
    return "\n".join(lines)
