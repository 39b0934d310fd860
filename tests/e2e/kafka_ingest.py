"""An ingestion of a topic in a process of its own, to which something is done where it is told to.

    python -m tests.e2e.kafka_ingest LAKE SERVERS TOPIC [--write N | --message N] [--do WHAT] [--batch N]

Without WHAT it kills itself. SIGKILL: nothing of the process is tidied up, as by the kernel when
memory runs out.
"""

import json
import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from include.connectors import KafkaTopic
from include.ingest import kafka
from include.ingest.ingest import ingest
from include.ingest.ingest_log import read_done
from include.ingest.kafka import BrokerTopic, Message
from include.ingest.splits import Split
from include.lake.errors import LakeError
from include.lake.paths import Lake
from include.settings import Source
from tests.deaths import WRITES
from tests.ingested import SIGNALS

HIT = "hit"


Offsets = tuple[int, int, int]  # a partition, and from which offset until which


class Hit(NamedTuple):
    """The progress of a run when something was done to it."""

    read: Sequence[Offsets] = ()  # ranges that it had read whole, and only had to write
    is_begun: bool = True  # whether a batch was ever taken: before, nothing is the lake's to lose


Do = Callable[[Hit], None]


def source_of(servers: str, topic: str, **changes: Any) -> Source:
    connector = KafkaTopic(servers=servers, topic=topic, **changes)
    return replace(SIGNALS, connector=connector)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def what_is_done(words: list[str], servers: str, topic: str) -> Callable[[], None]:
    """`kill [PID]`; `expire PARTITION BEFORE`; `add PARTITIONS`; `recreate PARTITIONS`."""
    what, *numbers = words
    given = [int(number) for number in numbers]
    if what == "kill":
        return lambda: kill(*given or [os.getpid()])
    admin = AdminClient({"bootstrap.servers": servers})

    def expire(partition: int, before: int) -> None:
        at = TopicPartition(topic, partition, before)
        admin.delete_records([at])[at].result()

    def add(partitions: int) -> None:
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()

    def recreate(partitions: int) -> None:
        admin.delete_topics([topic])[topic].result()
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()

    do: dict[str, Callable[..., None]] = {"expire": expire, "add": add, "recreate": recreate}
    return lambda: do[what](*given)


def do_before_write(number: int, lake: Lake, do: Do) -> None:
    """Before the run's write of that number, from 0."""
    names: list[str] = []  # of the writes before

    def doing(name: str, write: Any) -> Any:
        def count_and_write(*given: Any, **named: Any) -> Any:
            if len(names) == number:
                do(hit(lake, DoingTopic.whole))
            names.append(name)
            return write(*given, **named)

        return count_and_write

    for place, name in WRITES:
        setattr(place, name, doing(name, getattr(place, name)))


def hit(lake: Lake, read: Sequence[Offsets]) -> Hit:
    return Hit(read, is_begun=bool(read or read_done(lake, SIGNALS.name).names))


class DoingTopic(BrokerTopic):
    """Knows what was read whole, and does it once, when so many messages were read."""

    left = -1  # it does nothing
    do: Callable[[], None]
    whole: ClassVar[list[Offsets]] = []

    def read(self, wanted: Split) -> Iterator[Message]:
        for message in super().read(wanted):
            if not DoingTopic.left:
                DoingTopic.do()
            DoingTopic.left -= 1
            yield message
        self.whole.append((wanted.partition, wanted.first, wanted.until))


def main() -> None:
    parser = ArgumentParser()
    for name in ("lake", "servers", "topic"):
        parser.add_argument(name)
    parser.add_argument("--write", type=int)
    parser.add_argument("--message", type=int)
    parser.add_argument("--do", nargs="+", default=["kill"])
    parser.add_argument("--batch", type=int, default=500_000)
    parser.add_argument("--timeout-s", type=int, default=30)
    given = parser.parse_args()
    done = what_is_done(given.do, given.servers, given.topic)

    lake = Lake(given.lake)

    def do(found: Hit) -> None:
        sys.stdout.write(f"{HIT}{json.dumps(found)}\n")
        sys.stdout.flush()
        done()

    if given.write is not None:
        do_before_write(given.write, lake, do)
    if given.message is not None:
        DoingTopic.left = given.message
    DoingTopic.do = staticmethod(lambda: do(hit(lake, ())))  # type: ignore[assignment]
    kafka.BrokerTopic = DoingTopic  # type: ignore[misc]
    timeout = timedelta(seconds=given.timeout_s)
    source = source_of(given.servers, given.topic, commit_messages=given.batch, timeout=timeout)
    try:
        sys.stdout.write(f"{asdict(ingest(lake, source))}\n")
    except LakeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
