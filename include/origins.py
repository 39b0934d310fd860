"""Where a source's rows come from, if not from files in landing: a topic of Kafka, a table of others.

The scheduler imports this at every parse, so it needs no package.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from include.settings_error import SettingsError

# What a field of a Kafka source can have for its path, beside those of the message's value.
OF_MESSAGE = ("key", "headers", "topic", "partition", "offset", "timestamp")
MESSAGE = "_kafka"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, kw_only=True)
class KafkaTopic:
    """A topic, read between offsets that ingestion plans and keeps itself; no consumer group."""

    servers: str  # "host:9092,other:9092", to begin with
    topic: str
    format: Literal["json"] = "json"  # of the values: one JSON object each
    # A message without a value: into quarantine, or passed over and counted in a finding.
    tombstones: Literal["quarantine", "skip"] = "quarantine"
    # The most offsets of a batch, which is one commit: in memory at once, where no JVM is started.
    commit_messages: int = 500_000
    # More than this waiting is read by Spark's workers; less by processes of the task's machine.
    spark_messages: int = 20_000_000
    timeout: timedelta = timedelta(seconds=30)  # for an answer of the brokers
    tls: bool = False
    ca_file: str | None = None  # None: the authorities of the machine
    certificate_file: str | None = None  # of this client, with its key
    key_file: str | None = None
    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str | None = None
    # Names of environment variables. What is secret is nowhere else.
    password_env: str | None = None
    key_password_env: str | None = None

    def __post_init__(self) -> None:
        for name in ("servers", "topic"):
            if not getattr(self, name).strip():
                raise SettingsError(f"Kafka: {name} is empty")
        for limit in ("commit_messages", "spark_messages"):
            if getattr(self, limit) < 1:
                raise SettingsError(f"Kafka topic {self.topic}: {limit} must be above 0")
        if self.timeout < timedelta(seconds=1):
            raise SettingsError(f"Kafka topic {self.topic}: timeout must be at least a second")
        self._check_word("format", ("json",))
        self._check_word("tombstones", ("quarantine", "skip"))
        self._check_security()

    def _check_word(self, name: str, known: Iterable[str]) -> None:
        if getattr(self, name) not in known:
            raise SettingsError(
                f"Kafka topic {self.topic}: {name}={getattr(self, name)!r} is not supported: "
                f"known are {', '.join(known)}"
            )

    def _check_security(self) -> None:
        if self.sasl is not None:
            self._check_word("sasl", MECHANISMS)
            if not (self.username and self.password_env):
                raise SettingsError(
                    f"Kafka topic {self.topic}: sasl needs a username, and in password_env the name "
                    "of the environment variable that has the password"
                )
        elif self.username or self.password_env:
            raise SettingsError(f"Kafka topic {self.topic}: username and password_env need sasl")
        files = (self.ca_file, self.certificate_file, self.key_file, self.key_password_env)
        if any(files) and not self.tls:
            raise SettingsError(f"Kafka topic {self.topic}: certificates and keys need tls=True")
        if bool(self.certificate_file) != bool(self.key_file):
            raise SettingsError(
                f"Kafka topic {self.topic}: certificate_file and key_file go together"
            )

    def check_paths(self, source: str, paths: Iterable[str]) -> None:
        """SettingsError for a path below `_kafka` that no message has."""
        for path in paths:
            first, _, rest = path.partition(".")
            if first == MESSAGE and rest.split(".")[0] not in OF_MESSAGE:
                raise SettingsError(
                    f"source {source}: no message has {path!r}: known are "
                    f"{', '.join(f'{MESSAGE}.{name}' for name in OF_MESSAGE)}"
                )


@dataclass(frozen=True, kw_only=True)
class DeltaTable:
    """A Delta table that others write: the rows that are appended to it, and first those it has."""

    uri: str
    # A commit that deletes or updates rows stops ingestion; or it is passed over, with a finding; or,
    # of a table with a change data feed, all of it but the rows that it inserts.
    on_change: Literal["stop", "ignore", "inserts"] = "stop"

    def __post_init__(self) -> None:
        if not self.uri.strip():
            raise SettingsError("Delta table: uri is empty")
        if self.on_change not in ("stop", "ignore", "inserts"):
            raise SettingsError(
                f"Delta table {self.uri}: on_change must be stop, ignore or inserts, not "
                f"{self.on_change!r}"
            )


Origin = KafkaTopic | DeltaTable
