"""The places that a source's rows come from: formats of landed files, a Kafka topic, a Delta table of others, the
table of a stream, other sources.

The scheduler imports this at every parse, so it needs no package.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit
from zoneinfo import available_timezones

from include.lake.errors import SettingsError

PROJECT = Path(__file__).resolve().parents[1]
# Paths below `_kafka` that a field of a topic can have.
OF_MESSAGE = ("key", "headers", "topic", "partition", "offset", "timestamp")
MESSAGE = "_kafka"
A_SECOND, NO_TIME, MILLISECOND = timedelta(seconds=1), timedelta(0), timedelta(milliseconds=1)
Rule = tuple[str, bool, str]  # a setting, whether it is right, and what it must be
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def check(whose: str, *rules: Rule) -> None:
    """Raise SettingsError for the first rule that is not met."""
    for setting, is_right, said in rules:
        if not is_right:
            raise SettingsError(f"{whose}: {setting} {said}", subject=setting)


def one_of(setting: str, value: str | None, *known: str | None) -> Rule:
    """Return the rule that a setting has one of these values."""
    return setting, value in known, f"must be one of {', '.join(map(str, known))}, not {value!r}"


@dataclass(frozen=True, kw_only=True)
class Secured:
    """The address of a server, and how server and client prove who they are."""

    timeout: timedelta = timedelta(seconds=30)  # how long an answer may take
    ca_file: str | None = None  # certificates to trust. None: the machine's
    certificate_file: str | None = None  # the client's certificate
    key_file: str | None = None  # the key of that certificate
    username: str | None = None  # goes together with password_env
    password_env: str | None = None  # name of the environment variable with the password
    key_password_env: str | None = None  # name of the one with the password of key_file

    def check_secured(self, name: str, has_tls: bool, needed: str) -> None:
        """Raise SettingsError if settings do not go together."""
        files = (self.ca_file, self.certificate_file, self.key_file, self.key_password_env)
        has_user, has_both = bool(self.username), bool(self.certificate_file) == bool(self.key_file)
        variable = "goes with password_env, the name of the environment variable with the password"
        check(
            name,
            ("timeout", self.timeout >= A_SECOND, "must be at least a second"),
            ("username", has_user == bool(self.password_env), variable),
            ("ca_file", has_tls or not any(files), f"and other certificates need {needed}"),
            ("certificate_file", has_both, "goes together with key_file"),
        )


@dataclass(frozen=True, kw_only=True)
class SchemaRegistry(Secured):
    """A registry of Avro schemas, by the id that each value begins with."""

    url: str  # "https://registry:8081", without a user or password

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
        said = "must be http://HOST or https://HOST, and no user in it"
        check("schema registry", ("url", is_http and "@" not in parts.netloc, said))
        self.check_secured(self.place, parts.scheme == "https", "an https:// url")

    @property
    def place(self) -> str:
        """The registry as messages name it."""
        return f"schema registry {self.url}"


@dataclass(frozen=True, kw_only=True)
class KafkaTopic(Secured):
    """A topic of Kafka. The ingest log has the offsets that were read; no consumer group does."""

    servers: str  # bootstrap servers: "host:9092,other:9092"
    topic: str  # its name
    format: Literal["json", "avro"] = "json"  # of values: each one JSON object, or one Avro record
    # For Avro values that begin with their schema's id, as Confluent's serializers write them.
    schema_registry: SchemaRegistry | None = None
    # For bare Avro values, all of this schema: its JSON, or the path of a file of this project.
    schema: str | None = None
    # A message without a value goes to quarantine, or is passed over and counted in a finding.
    tombstones: Literal["quarantine", "skip"] = "quarantine"
    # The most offsets of a batch, which is one commit; without Spark, in memory at once.
    commit_messages: int = 500_000
    # More messages waiting are read by Spark, less by processes of this machine.
    spark_messages: int = 20_000_000
    tls: bool = False  # True: connections are encrypted
    # How username and password are sent; None without these.
    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None

    def __post_init__(self) -> None:
        has_user = bool(self.username or self.password_env)
        check(
            self.place,
            ("servers", bool(self.servers.strip()), "is empty"),
            ("topic", bool(self.topic.strip()), "is empty"),
            ("commit_messages", self.commit_messages > 0, "must be above 0"),
            ("spark_messages", self.spark_messages > 0, "must be above 0"),
            one_of("format", self.format, "json", "avro"),
            one_of("tombstones", self.tombstones, "quarantine", "skip"),
            one_of("sasl", self.sasl, None, *MECHANISMS),
            ("sasl", bool(self.sasl) == has_user, "goes together with username"),
        )
        self._check_schema()
        self.check_secured(self.place, self.tls, "tls=True")

    @property
    def place(self) -> str:
        """The topic as messages name it."""
        return f"topic {self.topic}"

    @property
    def uri(self) -> str:
        """The URI of its Asset in Airflow."""
        return f"kafka://{self.servers.split(',')[0].strip()}/{self.topic}"

    def _check_schema(self) -> None:
        given = [each for each in (self.schema_registry, self.schema) if each is not None]
        said = '"avro" needs either schema_registry or schema, and no other format has any'
        check(self.place, ("format", len(given) == (self.format == "avro"), said))
        if self.schema is not None:
            # The text, as other machines that read the topic may lack the file.
            object.__setattr__(self, "schema", _schema_text(self.place, self.schema))

    def check_paths(self, source: str, paths: Iterable[str]) -> None:
        """Raise SettingsError for a path below `_kafka` that no message has."""
        for path in paths:
            first, _, rest = path.partition(".")
            is_known = first != MESSAGE or rest.split(".")[0] in OF_MESSAGE
            known = ", ".join(f"{MESSAGE}.{name}" for name in OF_MESSAGE)
            check(f"source {source}", (path, is_known, f"is of no message: known are {known}"))


def _schema_text(whose: str, given: str) -> str:
    try:
        is_text = given.lstrip().startswith("{")
        text = given if is_text else (PROJECT / given).read_text()
        is_object = isinstance(json.loads(text), dict)
    except (OSError, ValueError, RecursionError) as error:
        said = f"{whose}: schema is neither JSON nor the path of a file with it: {error}"
        raise SettingsError(said, subject="schema") from None
    check(whose, ("schema", is_object, "is no JSON object"))
    return text


def secret(of: KafkaTopic | SchemaRegistry, setting: str) -> str | None:
    """Return the secret from the variable that `setting` names, or None if it names none.

    Raises SettingsError if the variable is not set.
    """
    variable = getattr(of, setting)
    if variable is None:
        return None
    if not (value := os.environ.get(variable)):
        raise SettingsError(
            f"{of.place}: {setting} names {variable}, which is not set in the environment of this process",
            subject=variable,
        )
    return value


@dataclass(frozen=True, kw_only=True)
class DeltaTable:
    """A Delta table that others write: first the rows it has, then those appended to it."""

    uri: str  # a folder, or s3a://...
    # A commit that deletes or updates rows stops ingestion, or is passed over with a finding.
    on_change: Literal["stop", "ignore"] = "stop"

    def __post_init__(self) -> None:
        is_given = bool(self.uri.strip())
        rule = one_of("on_change", self.on_change, "stop", "ignore")
        check("Delta table", ("uri", is_given, "is empty"), rule)

    @property
    def place(self) -> str:
        """The table as messages name it."""
        return f"the Delta table {self.uri}"

    def check_paths(self, source: str, paths: Iterable[str]) -> None:
        """Accept any path: a table may have any column."""


@dataclass(frozen=True)
class StreamTable:
    """The append table of another stream: each row that it emits is an event, at `emitted_at`."""

    stream: str  # its name

    def __post_init__(self) -> None:
        check("stream table", ("stream", bool(self.stream.strip()), "is empty"))

    @property
    def place(self) -> str:
        """The table as messages name it."""
        return f"the table of {self.stream}"

    def check_paths(self, source: str, paths: Iterable[str]) -> None:
        """Accept any path: the registry knows the table's columns."""


# Of a merged source: the column that names the input that a row is of, and that of its time.
INPUT, EVENT_TIME = "input", "event_time"


@dataclass(frozen=True, init=False)
class Merged:
    """Other sources as one: `Merged(orders=timedelta(minutes=10), payments=timedelta(hours=1))`."""

    # Each by its name, with how far behind its watermark a row of it may be and still count.
    inputs: Mapping[str, timedelta]

    def __init__(self, **inputs: timedelta) -> None:
        object.__setattr__(self, "inputs", inputs)
        whole = "must be whole milliseconds, 0 or more"
        rules = [(n, d >= NO_TIME and not d % MILLISECOND, whole) for n, d in inputs.items()]
        check("merged source", ("inputs", len(inputs) > 1, "must be two or more"), *rules)

    @property
    def place(self) -> str:
        """The inputs as messages name them."""
        return f"bronze of {', '.join(self.inputs)}"

    def check_paths(self, source: str, paths: Iterable[str]) -> None:
        """Accept any path: the registry knows the inputs' fields."""


def refuse_own_table(source: str, uri: str, lake: str) -> None:
    """Raise SettingsError for a Delta source of a table of the lake's own.

    That is written anew now and then, which bronze could not follow; and in Airflow two Assets would be of
    one URI.
    """
    here, there = (_place(each) for each in (lake, uri))
    if not there.startswith(f"{here}/"):
        return
    said = f"source {source}: {uri} is a table of this lake, and no DeltaTable of others"
    folder, _, name = there.removeprefix(f"{here}/").partition("/")
    if folder == "tables":
        said += f': give connector=StreamTable("{name}")'
    raise SettingsError(said, subject=source)


def _place(uri: str) -> str:
    """A folder or URI, spelt as others that are the same."""
    path = unquote(uri.removeprefix("file://")) if uri.startswith("file:") else uri
    path = path if "://" in path else str(Path(path).expanduser().resolve())
    return re.sub(r"^s3n?://", "s3a://", path).rstrip("/")


# The settings; include/ingest has a SourceConnector for each.
Connector = KafkaTopic | DeltaTable | StreamTable | Merged

TIME_FORMATS = ("iso", "epoch_s", "epoch_ms", "epoch_us")


@dataclass(frozen=True, kw_only=True)
class Times:
    """The way in which producers write times."""

    # "iso"; "epoch_s", "epoch_ms" or "epoch_us", since 1970, UTC; or a format of strptime.
    format: str = "iso"
    # The zone of times that have none, such as "Europe/Berlin". None: these are refused.
    zone: str | None = None

    def __post_init__(self) -> None:
        plain, is_usual = self.format.replace("%%", ""), self.format in TIME_FORMATS
        has_zone = is_usual or self.zone is not None or "%z" in plain
        is_zone = self.zone is None or self.zone in available_timezones()
        known = f"is none of {', '.join(TIME_FORMATS)}, or of strptime, such as %d/%m/%Y"
        named = (
            "reads the name of a zone (%Z), which each machine understands otherwise: have offsets "
            "written (%z), or leave it out and name `zone`"
        )
        check(
            "times",
            ("format", is_usual or "%" in self.format, f"{self.format!r} {known}"),
            ("format", "%Z" not in plain, f"{self.format!r} {named}"),
            ("zone", has_zone, f"must be named, as {self.format!r} has no %z"),
            ("zone", is_zone, f"{self.zone!r} is none, such as Europe/Berlin"),
        )


@dataclass(frozen=True, kw_only=True)
class Csv:
    """The way in which producers write CSV."""

    delimiter: str = ","  # one character
    quote: str | None = '"'  # doubled within a quoted cell. None: no cell is quoted
    encoding: str = "utf-8"  # by Python's name: "cp1252", "utf-16"
    decimal: str = "."  # the decimal separator: "." or ","
    # The columns of files without a header line, in order.
    header: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        marks = [self.delimiter] if self.quote is None else [self.delimiter, self.quote]
        are_marks = all(len(mark) == 1 and mark not in "\r\n\0" for mark in marks)
        are_two = are_marks and len({*marks}) == len(marks)
        check(
            "csv",
            ("delimiter", are_two, "and quote must be two different characters, and no line's end"),
            one_of("decimal", self.decimal, ".", ","),
            ("encoding", _is_text_encoding(self.encoding), "is none of Python, such as cp1252"),
            (
                "header",
                self.header != (),
                "must name the columns; None: the files' first line does",
            ),
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
