"""Origins of a source's rows: files in landing and their formats, a topic of Kafka, a Delta table of others.

The scheduler imports this at every parse, so it needs no package.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from zoneinfo import available_timezones

from include.lake.errors import SettingsError

PROJECT = Path(__file__).resolve().parents[1]
# What a field of a Kafka source can have for its path, beside those of the message's value.
OF_MESSAGE = ("key", "headers", "topic", "partition", "offset", "timestamp")
MESSAGE = "_kafka"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, kw_only=True)
class SchemaRegistry:
    """Where the schemas of Avro values are had, by the id that each value begins with."""

    url: str  # "https://registry:8081"; what is secret is not in it
    timeout: timedelta = timedelta(seconds=30)  # for an answer
    ca_file: str | None = None  # None: the authorities of the machine
    certificate_file: str | None = None  # of this client, with its key
    key_file: str | None = None
    username: str | None = None
    # Names of environment variables, as those of a topic.
    password_env: str | None = None
    key_password_env: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise SettingsError(
                "schema registry: url must be http://HOST or https://HOST, and no user in it",
                subject="url",
            )
        if self.timeout < timedelta(seconds=1):
            raise _wrong(self.name, "timeout", "must be at least a second")
        if bool(self.username) != bool(self.password_env):
            raise _wrong(
                self.name,
                "username",
                "goes with password_env, the name of the environment variable that has the password",
            )
        _check_certificates(self, parts.scheme == "https", "an https:// url")

    @property
    def name(self) -> str:
        """For people."""
        return f"schema registry {self.url}"


@dataclass(frozen=True, kw_only=True)
class KafkaTopic:
    """A topic, read between offsets that ingestion plans and keeps itself; no consumer group."""

    servers: str  # "host:9092,other:9092", to begin with
    topic: str
    format: Literal["json", "avro"] = "json"  # of the values: one object, or record, each
    # Of Avro: values with their schema's id before them, as Confluent's clients write them; or bare
    # ones, all of this schema: its JSON, or the path of a file of this folder that has it.
    schema_registry: SchemaRegistry | None = None
    schema: str | None = None
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
                raise _wrong("Kafka", name, "is empty")
        for limit in ("commit_messages", "spark_messages"):
            if getattr(self, limit) < 1:
                raise _wrong(self.name, limit, "must be above 0")
        if self.timeout < timedelta(seconds=1):
            raise _wrong(self.name, "timeout", "must be at least a second")
        self._check_word("format", ("json", "avro"))
        self._check_word("tombstones", ("quarantine", "skip"))
        self._check_schema()
        self._check_security()

    @property
    def name(self) -> str:
        """For people."""
        return f"Kafka topic {self.topic}"

    @property
    def place(self) -> str:
        """Where its rows are, for people."""
        return f"topic {self.topic}"

    @property
    def uri(self) -> str:
        """Of its Asset in Airflow."""
        return f"kafka://{self.servers.split(',')[0].strip()}/{self.topic}"

    def _check_schema(self) -> None:
        given = [self.schema_registry, self.schema]
        if len([each for each in given if each is not None]) != (self.format == "avro"):
            raise _wrong(
                self.name,
                "format",
                '"avro" needs either schema_registry or schema, and no other format has any',
            )
        if self.schema is not None:
            # Here, so that whoever reads the topic, on whatever machine, has it.
            object.__setattr__(self, "schema", _schema_text(self.name, self.schema))

    def _check_word(self, name: str, known: Iterable[str]) -> None:
        if getattr(self, name) not in known:
            raise _wrong(
                self.name, name, f"must be one of {', '.join(known)}, not {getattr(self, name)!r}"
            )

    def _check_security(self) -> None:
        if self.sasl is not None:
            self._check_word("sasl", MECHANISMS)
            if not (self.username and self.password_env):
                raise _wrong(
                    self.name,
                    "sasl",
                    "needs a username, and in password_env the name of the environment variable that "
                    "has the password",
                )
        elif self.username or self.password_env:
            raise _wrong(self.name, "sasl", "is needed for username and password_env")
        _check_certificates(self, self.tls, "tls=True")

    def check_paths(self, source: str, paths: Iterable[str]) -> None:
        """SettingsError for a path below `_kafka` that no message has."""
        for path in paths:
            first, _, rest = path.partition(".")
            if first == MESSAGE and rest.split(".")[0] not in OF_MESSAGE:
                raise SettingsError(
                    f"source {source}: no message has {path!r}: known are "
                    f"{', '.join(f'{MESSAGE}.{name}' for name in OF_MESSAGE)}",
                    subject=path,
                )


def _wrong(whose: str, setting: str, said: str) -> SettingsError:
    return SettingsError(f"{whose}: {setting} {said}", subject=setting)


def _check_certificates(of: KafkaTopic | SchemaRegistry, has_tls: bool, needed: str) -> None:
    files = (of.ca_file, of.certificate_file, of.key_file, of.key_password_env)
    if any(files) and not has_tls:
        raise _wrong(of.name, "ca_file", f"and other certificates and keys need {needed}")
    if bool(of.certificate_file) != bool(of.key_file):
        raise _wrong(of.name, "certificate_file", "goes together with key_file")


def _schema_text(whose: str, given: str) -> str:
    try:
        is_text = given.lstrip().startswith("{")
        text = given if is_text else (PROJECT / given).read_text()
        if not isinstance(json.loads(text), dict):
            raise _wrong(whose, "schema", "is no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        said = f"is neither JSON nor the path of a file with it: {error}"
        raise _wrong(whose, "schema", said) from None
    return text


def secret(of: KafkaTopic | SchemaRegistry, setting: str) -> str | None:
    """What the environment has under the name that is set; None of no name. SettingsError when nothing."""
    variable = getattr(of, setting)
    if variable is None:
        return None
    if not (value := os.environ.get(variable)):
        raise SettingsError(
            f"{of.name}: {setting} names {variable}, which is not set in the environment of this process",
            subject=variable,
        )
    return value


@dataclass(frozen=True, kw_only=True)
class DeltaTable:
    """A Delta table that others write: the rows that are appended to it, and first those it has."""

    uri: str
    # A commit that deletes or updates rows stops ingestion; or it is passed over, with a finding.
    on_change: Literal["stop", "ignore"] = "stop"

    def __post_init__(self) -> None:
        if not self.uri.strip():
            raise _wrong("Delta table", "uri", "is empty")
        if self.on_change not in ("stop", "ignore"):
            said = f"must be stop or ignore, not {self.on_change!r}"
            raise _wrong(f"Delta table {self.uri}", "on_change", said)

    @property
    def place(self) -> str:
        """Where its rows are, for people."""
        return f"the Delta table {self.uri}"

    def check_paths(self, source: str, paths: Iterable[str]) -> None:
        """Of a table any path may be one."""


Origin = KafkaTopic | DeltaTable

TIME_FORMATS = ("iso", "epoch_s", "epoch_ms", "epoch_us")


@dataclass(frozen=True, kw_only=True)
class Times:
    """How producers write times, where these do not say it themselves."""

    # iso: ISO-8601. epoch_s, epoch_ms, epoch_us: since 1970, UTC. Else a format of strptime.
    format: str = "iso"
    # Of times that have none, such as "Europe/Berlin". None: these are refused.
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.format not in TIME_FORMATS and "%" not in self.format:
            raise SettingsError(
                f"times: {self.format!r} is no format: allowed are {', '.join(TIME_FORMATS)}, or one "
                'of strptime, such as "%d/%m/%Y %H:%M:%S"',
                subject="format",
            )
        if "%Z" in self.format.replace("%%", ""):
            raise SettingsError(
                f"times: {self.format!r} reads the name of a zone (%Z), which each machine understands "
                "otherwise: have offsets written (%z), or leave it out and name `zone`",
                subject="format",
            )
        if self.zone is not None and self.zone not in available_timezones():
            raise SettingsError(
                f"times: {self.zone!r} is no time zone, such as Europe/Berlin", subject="zone"
            )


@dataclass(frozen=True, kw_only=True)
class Csv:
    """How producers write CSV."""

    delimiter: str = ","
    quote: str | None = '"'  # doubled within a quoted cell. None: no cell is quoted
    encoding: str = "utf-8"  # one of Python's names: "cp1252", "utf-16"
    decimal: str = "."  # the point in numbers: "." or ","
    # The columns of files that have no header line, in order.
    header: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        marks = [self.delimiter] if self.quote is None else [self.delimiter, self.quote]
        if any(len(mark) != 1 or mark in "\r\n\0" for mark in marks) or len({*marks}) < len(marks):
            raise SettingsError(
                f"csv: delimiter {self.delimiter!r} and quote {self.quote!r} must be two different "
                "characters, and no line's end",
                subject="delimiter",
            )
        if self.decimal not in (".", ","):
            raise SettingsError(
                f"csv: decimal is . or , and not {self.decimal!r}", subject="decimal"
            )
        if not _is_text_encoding(self.encoding):
            raise SettingsError(
                f"csv: {self.encoding!r} is no encoding, such as cp1252", subject="encoding"
            )
        if self.header is not None and not self.header:
            raise SettingsError(
                "csv: header must name the columns; None: the files' first line does",
                subject="header",
            )


def _is_text_encoding(name: str) -> bool:
    try:
        b"a".decode(name)
    except LookupError:
        return False
    except UnicodeError:  # of two bytes, such as UTF-16
        return True
    return True


ISO = Times()
USUAL_CSV = Csv()
