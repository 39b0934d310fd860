"""What no source can be declared with, refused where it is declared, by the name of the setting."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from include.connectors import DeltaTable, KafkaTopic, SchemaRegistry
from include.fold.definition import Deduplicate
from include.ingest.bronze_tables import bronze_columns
from include.registry import source_named
from include.settings import FOLDER, Csv, Field, Limits, Source, Times
from tests.refused import refused
from tests.topics import TOPIC

REGISTRY = SchemaRegistry(url="http://registry:8081")
SIGNALS = source_named("signals")
MINUTE = timedelta(minutes=1)
PER_DEVICE = replace(SIGNALS, watermark_per="device_id", idle_after=MINUTE)
# Python knows UTC and the machine's own names (%Z), and passes over them: 12:00 UTC would be 10:00.
NAMED_ZONE = {"format": "%Y-%m-%d %H:%M %Z", "zone": "Europe/Berlin"}


def kafka(**changes: Any) -> KafkaTopic:
    return KafkaTopic(**{"servers": "a:1", "topic": "t", **changes})


def registry(**changes: Any) -> SchemaRegistry:
    return SchemaRegistry(**{"url": "http://registry", **changes})


def field(**changes: Any) -> Field:
    return Field(**{"name": "a", "type": "string", "comment": "", **changes})


def source(*fields: Field, **settings: Any) -> Source:
    return Source(name="s", time_field="t", comment="", fields=fields, **settings)


def known_by(name: str) -> Source:
    again = Deduplicate(by=name, within=MINUTE)
    return source(field(), field(name="b", type="double"), deduplicate=again)


WRONG: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (Csv, {"delimiter": ""}, "delimiter"),
    (Csv, {"delimiter": "::"}, "delimiter"),
    (Csv, {"delimiter": "\n"}, "delimiter"),
    (Csv, {"delimiter": '"'}, "delimiter"),
    (Csv, {"quote": ""}, "delimiter"),
    (Csv, {"encoding": "cp99999"}, "encoding"),
    (Csv, {"encoding": "base64"}, "encoding"),
    (Csv, {"header": ()}, "header"),
    (Times, {"format": "epoch"}, "format"),
    (Times, {"zone": "Berlin"}, "zone"),
    (Times, {"format": "%d/%m/%Y"}, "zone"),
    (Times, NAMED_ZONE, "format"),
    (field, {"type": "bolean"}, "a"),
    (field, {"type": "decimal(40,2)"}, "a"),
    (lambda: source(field(), field(name="A")), {}, "A"),
    (lambda: bronze_columns(source(field(name="ingested_at"))), {}, "ingested_at"),
    (known_by, {"name": "c"}, "deduplicate"),
    (known_by, {"name": "b"}, "deduplicate"),
    (lambda: source(field(path="_kafka.keys"), connector=TOPIC), {}, "_kafka.keys"),
    (lambda: replace(SIGNALS, max_quarantined=-0.1), {}, "max_quarantined"),
    (lambda: replace(SIGNALS, max_quarantined=1.1), {}, "max_quarantined"),
    (lambda: replace(SIGNALS, max_quarantined=float("nan")), {}, "max_quarantined"),
    (
        lambda: replace(PER_DEVICE, watermark_per=FOLDER, connector=DeltaTable(uri="t")),
        {},
        "watermark_per",
    ),
    (lambda: replace(PER_DEVICE, watermark_per="nobody"), {}, "watermark_per"),
    (lambda: replace(PER_DEVICE, idle_after=timedelta(0)), {}, "idle_after"),
    (lambda: replace(PER_DEVICE, watermark_groups=0), {}, "watermark_groups"),
    (DeltaTable, {"uri": "a", "on_change": "drop"}, "on_change"),
    (DeltaTable, {"uri": " "}, "uri"),
    (kafka, {"format": "csv"}, "format"),
    (kafka, {"topic": ""}, "topic"),
    (kafka, {"tombstones": "drop"}, "tombstones"),
    (kafka, {"sasl": "PLAIN"}, "sasl"),
    (kafka, {"sasl": "GSSAPI"}, "sasl"),
    (kafka, {"password_env": "X"}, "sasl"),
    (kafka, {"ca_file": "/ca"}, "ca_file"),
    (kafka, {"tls": True, "key_file": "/k"}, "certificate_file"),
    (kafka, {"commit_messages": 0}, "commit_messages"),
    (kafka, {"format": "avro"}, "format"),
    (kafka, {"format": "avro", "schema": "{}", "schema_registry": REGISTRY}, "format"),
    (kafka, {"schema_registry": REGISTRY}, "format"),
    (kafka, {"format": "avro", "schema": "{"}, "schema"),
    (kafka, {"format": "avro", "schema": "not/there.avsc"}, "schema"),
    (registry, {"url": "registry:8081"}, "url"),
    (registry, {"url": "https://me:secret@registry"}, "url"),
    (registry, {"username": "me"}, "username"),
    (registry, {"ca_file": "/ca"}, "ca_file"),
    (registry, {"url": "https://registry", "key_file": "/k"}, "certificate_file"),
    (registry, {"timeout": timedelta(0)}, "timeout"),
    (Limits, {"skew": -1.0}, "skew"),
]


@pytest.mark.parametrize(("declared", "settings", "subject"), WRONG)
def test_it_is_refused_by_name_and_no_password_is_shown(declared, settings, subject):
    with refused("wrong_setting", subject=subject) as told:
        declared(**settings)
    assert "secret" not in str(told.value)
