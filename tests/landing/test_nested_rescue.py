"""Members of nested values that their types do not have are kept, counted and told, too."""

import io
import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastavro import parse_schema, writer
from hypothesis import given
from hypothesis import strategies as st

from include.fold.sql_types import SqlType, sql_type
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.landing.landed_json import JsonRows
from include.landing.nested_rescue import inside_of
from include.landing.parsed_batch import Parse
from include.landing.rescue import Rescue
from include.settings import Field
from tests.examples import examples
from tests.ingested import SIGNALS
from tests.landed_files import START, Landing
from tests.landing.test_schema_changes import bronze, land, rescued, row, source, values_read
from tests.parsers import both_parsers

PAYLOAD = Field(
    name="payload",
    type="struct<id: bigint, user: struct<name: string>>",
    required=False,
    comment="Of whom",
)
ITEMS = Field(
    name="items",
    type="array<struct<sku: string, prices: map<string, struct<net: double>>>>",
    required=False,
    comment="What",
)
X_OF_PAYLOAD = Field(name="x", type="bigint", path="payload.x", required=False, comment="X")
ORDER = {
    "payload": {"id": 1, "user": {"name": "ann", "nick": "a"}, "more": {"x": 1.10, "y": None}},
    "items": [
        {"sku": "s", "prices": {"eur": {"net": 1.0}, "usd": {"net": 2.0, "tax": 3}}},
        {"sku": "t", "gift": True, "prices": None},
    ],
}
KEPT = {
    "payload.user.nick": "a",
    "payload.more": {"x": 1.1, "y": None},
    "items[].gift": {"1": True},
    "items[].prices[].tax": {"0": {"usd": 3}},
}


@both_parsers
def test_they_are_kept_counted_and_told_once_under_their_path(
    lake: Lake, landed: Landing, parse: Parse
):
    known = {"payload": {"id": 1, "user": {"name": "ann"}}, "items": [{"sku": "s"}]}
    land(landed, "0.jsonl", row(0, **ORDER), row(1, **known), row(2, payload={"user": {"nick": 1}}))
    counts = ingest(lake, source(PAYLOAD, ITEMS), parse=parse)
    assert (counts.rows_bronze, counts.rows_rescued) == (3, 2)
    assert rescued(lake) == [KEPT, None, {"payload.user.nick": 1}]
    assert bronze(lake)[0]["payload"] == {"id": 1, "user": {"name": "ann"}}
    land(landed, "1.jsonl", row(3, payload={"user": {"nick": "b"}}))
    ingest(lake, source(PAYLOAD, ITEMS), parse=parse)
    found = read_ops(lake, "findings", {"finding": "unknown_field"}).sort_by("detail").to_pylist()
    assert [(each["count"], each["detail"].split()[0].strip('"')) for each in found] == [
        (1, "items[].gift"),
        (1, "items[].prices[].tax"),
        (1, "payload.more"),
        (2, "payload.user.nick"),
    ]


def test_one_that_is_declared_by_its_path_later_is_read_of_older_rows(lake: Lake, landed: Landing):
    value = Field(
        name="value", type="bigint", path="payload.user.n", required=False, comment="Number"
    )
    land(landed, "0.jsonl", row(0, payload={"user": {"n": 7}}))
    ingest(lake, source(PAYLOAD))
    land(landed, "1.jsonl", row(1, payload={"user": {"n": 8, "m": 9}}))
    assert ingest(lake, source(PAYLOAD, value)).rows_rescued == 1
    assert values_read(lake) == [7, 8]
    assert rescued(lake)[1] == {"payload.user.m": 9}


def test_one_that_lay_within_what_was_rescued_is_read_of_older_rows(lake: Lake, landed: Landing):
    value = Field(
        name="value", type="bigint", path="payload.more.of.n", required=False, comment="Number"
    )
    land(landed, "0.jsonl", row(0, payload={"id": 1, "more": {"of": {"n": 7}, "y": 1}}))
    land(landed, "1.jsonl", row(1, payload={"id": 1, "more": [1]}))
    ingest(lake, source(PAYLOAD))
    land(landed, "2.jsonl", row(2, payload={"more": {"of": {"n": 8}}}))
    ingest(lake, source(PAYLOAD, value))
    assert values_read(lake) == [7, None, 8]


def test_a_wider_struct_under_another_name_does_not_take_them_for_its_value(
    lake: Lake, landed: Landing
):
    land(landed, "0.jsonl", row(0, payload={"id": 1, "x": 2}))
    ingest(lake, source(PAYLOAD))
    wide = replace(PAYLOAD, name="value", type="struct<id: bigint, x: bigint>", path="payload")
    ingest(lake, source(PAYLOAD, wide))
    assert bronze(lake)[0]["value"] is None
    assert rescued(lake) == [{"payload.x": 2}]


@pytest.mark.parametrize(
    ("fields", "settings", "given_", "left"),
    [
        ((PAYLOAD, ITEMS), {"rescue": False}, ORDER, None),
        ((PAYLOAD,), {"ignored": ("payload.user.nick", "payload.more", "items")}, ORDER, None),
        (
            (PAYLOAD, ITEMS),
            {"ignored": ("payload", "items[].gift", "items[].prices[].x")},
            ORDER,
            {"items[].prices[].tax": {"0": {"usd": 3}}},
        ),
        # Names with dots, and paths that are the same.
        ((PAYLOAD,), {}, {"payload": {"user.nick": 1, "user": {"nick": 2}}, "payload.user.nick": 3},
         {"payload.user.nick": 3, "payload.user.nick'": 1, "payload.user.nick''": 2}),
        # A field that lies in another, and one that is nested and lies deeper.
        ((PAYLOAD, Field(name="x", type="bigint", path="payload.x.y", comment="X")), {},
         {"payload": {"x": {"y": 1, "z": 2}}}, {"payload.x.z": 2}),
        ((replace(PAYLOAD, path="who.is"),), {}, {"who": {"is": {"id": 1, "a": 1}, "b": 1}},
         {"who": {"b": 1}, "who.is.a": 1}),
        # What a path goes through is no object, or the path is a name too, which is taken.
        ((X_OF_PAYLOAD,), {}, {"payload": "Ann"}, {"payload": "Ann"}),
        ((X_OF_PAYLOAD,), {}, {"payload": [{"x": 1}]}, {"payload": [{"x": 1}]}),
        ((), {"ignored": ("payload.x",)}, {"payload": 3}, {"payload": 3}),
        ((ITEMS,), {"ignored": ("items[].gift.x",)},
         {"items": [{"gift": {"x": 1}}, {"gift": 2}]}, {"items[].gift": {"1": 2}}),
        ((X_OF_PAYLOAD,), {}, {"payload.x": 1, "payload": {"x": 2}}, {"payload": {"x": 2}}),
        # What is of another type is for its field to refuse.
        ((PAYLOAD, ITEMS), {}, {"payload": [1], "items": {"a": 1}}, None),
    ],
)  # fmt: skip
def test_what_is_kept(
    fields: tuple[Field, ...], settings: dict[str, Any], given_: dict[str, Any], left: Any
):
    text = Rescue(source(*fields, **settings)).text(row(0, **given_))
    assert (text and json.loads(text)) == left


def test_numbers_in_them_are_kept_to_the_last_digit():
    declared = source(PAYLOAD)
    line = f'{{"{SIGNALS.time_field}": "{START.isoformat()}", "payload": {{"n": 12345678901234567.89}}}}'
    text = Rescue(declared).text(JsonRows("", declared).values(line))
    assert text is not None
    assert json.loads(text, parse_float=Decimal) == {"payload.n": "12345678901234567.89"}


def test_those_of_csv_parquet_and_avro_are_kept(lake: Lake, landed: Landing):
    times = [START + timedelta(seconds=n) for n in range(3)]
    cells = json.dumps(ORDER["items"]).replace('"', '""')
    landed.add("0.csv", f'device_id,timestamp,items\n1,{times[0].isoformat()},"{cells}"\n')
    price = pa.map_(pa.string(), pa.struct([("net", pa.float64()), ("tax", pa.int64())]))
    item = pa.struct([("sku", pa.string()), ("gift", pa.bool_()), ("prices", price)])
    items = [
        {"sku": "s", "gift": None, "prices": [("usd", {"net": 2.0, "tax": 3})]},
        {"gift": True},
    ]
    sink = io.BytesIO()
    columns = {"device_id": [1], "timestamp": pa.array(times[1:2], pa.timestamp("us", "UTC"))}
    pq.write_table(pa.table({**columns, "items": pa.array([items], pa.list_(item))}), sink)
    landed.add("1.parquet", sink.getvalue())
    sink = io.BytesIO()
    writer(
        sink, AVRO, [{"device_id": 1, "timestamp": times[2], "payload": {"id": 1, "extra": "x"}}]
    )
    landed.add("2.avro", sink.getvalue())
    ingest(lake, source(PAYLOAD, ITEMS))
    of_items = {"items[].gift": {"1": True}, "items[].prices[].tax": {"0": {"usd": 3}}}
    assert rescued(lake) == [of_items, of_items, {"payload.extra": "x"}]


AVRO = parse_schema(
    {
        "type": "record",
        "name": "signal",
        "fields": [
            {"name": "device_id", "type": "long"},
            {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {
                "name": "payload",
                "type": {
                    "type": "record",
                    "name": "payload",
                    "fields": [
                        {"name": "id", "type": "long"},
                        {"name": "extra", "type": "string"},
                    ],
                },
            },
        ],
    }
)

# Any nested type, and any JSON: by an oracle that goes by the path of each leaf.
kinds = st.recursive(
    st.just(SqlType("bigint")),
    lambda parts: (
        st.builds(lambda part: SqlType("array", (part,)), parts)
        | st.builds(lambda part: SqlType("map", (SqlType("string"), part)), parts)
        | st.builds(
            lambda members: SqlType("struct", tuple(members.values()), tuple(members)),
            st.dictionaries(st.sampled_from("ab"), parts, min_size=1),
        )
    ),
    max_leaves=6,
)


@st.composite
def values(draw: st.DrawFn, kind: SqlType) -> Any:
    """A value of the type, with members that it does not have."""
    if draw(st.integers(0, 9)) == 0:
        return None
    if kind.name == "array":
        return draw(st.lists(values(kind.parts[0]), max_size=3))
    if kind.name == "map":
        return draw(st.dictionaries(st.sampled_from("kl"), values(kind.parts[1])))
    if kind.name == "struct":
        members = {
            name: draw(values(part)) for name, part in zip(kind.names, kind.parts, strict=True)
        }
        return members | draw(st.dictionaries(st.sampled_from("xy"), st.integers() | st.none()))
    return draw(st.integers())


def strangers(kind: SqlType, value: Any, path: str, keys: tuple[str, ...]) -> list[Any]:
    """Each value that the type does not know: its path, the indexes and keys on it, and it."""
    if value is None or kind.name == "bigint":
        return []
    found = []
    if kind.name == "struct":
        parts = dict(zip(kind.names, kind.parts, strict=True))
        for name, of in value.items():
            if name in parts:
                found += strangers(parts[name], of, f"{path}.{name}", keys)
            elif of is not None:
                found.append((f"{path}.{name}", keys, of))
        return found
    items = value.items() if kind.name == "map" else enumerate(value)
    for key, item in items:
        found += strangers(kind.parts[-1], item, f"{path}[]", (*keys, str(key)))
    return found


def leaves(parts: dict[str, Any]) -> list[Any]:
    found = []
    for path, value in parts.items():
        level = [((), value)]
        for _ in range(path.count("[]")):
            level = [((*keys, key), of) for keys, each in level for key, of in each.items()]
        found += [(path, keys, of) for keys, of in level]
    return found


@examples(100)
@given(st.data(), kinds)
def test_of_any_type_each_value_that_it_does_not_know_is_kept_at_its_place(
    data: Any, kind: SqlType
):
    given_ = data.draw(values(kind))
    field = Field(name="f", type=str(kind), required=False, comment="It")
    rescue = Rescue(source(field))
    text = rescue.text(row(0, f=given_))
    expected = sorted(strangers(sql_type(str(kind)), given_, "f", ()))
    assert sorted(leaves(json.loads(text) if text else {})) == expected
    told = json.loads(rescue.fields() or "{}")
    assert told == dict.fromkeys({path for path, *_ in expected}, 1)
    if inside_of(kind) is None:
        assert text is None
