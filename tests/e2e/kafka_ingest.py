"""An ingestion of a topic in a process of its own, that kills itself where it is told to.

    python -m tests.e2e.kafka_ingest LAKE SERVERS TOPIC [--write N | --message N] [--batch N]

SIGKILL: nothing of the process is tidied up, as by the kernel when memory runs out.
"""

import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from include.lake.paths import Lake, LakeError
from include.landing import kafka_client
from include.landing.ingest import ingest
from include.landing.kafka_client import BrokerTopic, Message
from include.landing.kafka_offsets import OffsetRange
from include.origins import KafkaTopic
from include.settings import Source
from tests.deaths import WRITES
from tests.ingested import SIGNALS


def source_of(servers: str, topic: str, **changes: Any) -> Source:
    origin = KafkaTopic(servers=servers, topic=topic, **changes)
    return replace(SIGNALS, origin=origin)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_before_write(number: int) -> None:
    """Before the run's write of that number, from 0."""
    left = [number]

    def dying(write: Any) -> Any:
        def count_and_write(*given: Any) -> Any:
            if not left[0]:
                die()
            left[0] -= 1
            return write(*given)

        return count_and_write

    for place, name in WRITES:
        setattr(place, name, dying(getattr(place, name)))


class DyingTopic(BrokerTopic):
    """Dies once so many messages were read."""

    left = 0

    def read(self, wanted: OffsetRange) -> Iterator[Message]:
        for message in super().read(wanted):
            if not self.left:
                die()
            self.left -= 1
            yield message


def main() -> None:
    parser = ArgumentParser()
    for name in ("lake", "servers", "topic"):
        parser.add_argument(name)
    parser.add_argument("--write", type=int)
    parser.add_argument("--message", type=int)
    parser.add_argument("--batch", type=int, default=500_000)
    given = parser.parse_args()
    if given.write is not None:
        die_before_write(given.write)
    if given.message is not None:
        DyingTopic.left = given.message
        kafka_client.BrokerTopic = DyingTopic  # type: ignore[misc]
    source = source_of(given.servers, given.topic, commit_messages=given.batch)
    try:
        sys.stdout.write(f"{asdict(ingest(Lake(given.lake), source))}\n")
    except LakeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
