"""Rows of a shape as their producers write them, and the source that takes them."""

import base64
import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from include.lake.columns import arrow_type
from include.settings import Deduplicate, Field, Source, Times
from tests.simulator.kinds import EPOCH, MOMENTS, NESTED, Kind
from tests.simulator.shapes import Landed, Shape

MOMENT = pa.timestamp("us", "UTC")


def shaped_source(source: Source, shape: Shape) -> Source:
    """The source with the shape's fields; without `value` where a stream has yet to ask for it."""
    more = tuple(
        Field(name=f"f{n}", type=kind.sql, required=not kind.nullable, comment="One more")
        for n, kind in enumerate(shape.fields)
    )
    own = [field for field in source.fields if field.name != "value" or not shape.late_value]
    return replace(source, fields=(*own, *more), times=Times(format=shape.times))


def with_value(source: Source) -> Source:
    """The source once it declares `value`, which rows that landed before may lack."""
    value = Field(name="value", type="bigint", required=False, comment="How much")
    return replace(source, fields=(*source.fields, value))


def deduplicated(shape: Shape) -> Deduplicate | None:
    """The `deduplicate=` of a stream."""
    names = tuple(f"f{number}" for number in shape.by)
    if not names:
        return None
    by = names[0] if len(names) == 1 else names
    return Deduplicate(by=by, within=timedelta(minutes=shape.within))


def landed_columns(rows: Sequence[Landed], shape: Shape) -> dict[str, pa.Array]:
    """The shape's fields of the rows, as bronze has them."""
    values = list(zip(*map(shape.values, rows), strict=True))
    return {
        name: pa.array([_as_arrow(kind, each) for each in of], arrow_type(kind.sql))
        for name, kind, of in zip(_names(shape), shape.fields, values, strict=True)
    }


def rescued(rows: Sequence[Landed]) -> pa.Array:
    """The `_rescued_data` of rows that have a `value` before the source declares it."""
    return pa.array([json.dumps({"value": row.value}) for row in rows])


def landed_file(rows: Sequence[Landed], shape: Shape) -> bytes:
    """A file of rows, as it lands."""
    write = {"jsonl": _json, "csv": _csv, "parquet": _parquet}[str(shape.format)]
    return write(rows, shape)


def _json(rows: Sequence[Landed], shape: Shape) -> bytes:
    lines = []
    for row in rows:
        named = zip(_names(shape), zip(shape.fields, shape.values(row), strict=True), strict=True)
        of = {name: _as_json(kind, value, shape.times) for name, (kind, value) in named}
        if row.value % 2:  # what is not there need not be named
            of = {name: value for name, value in of.items() if value is not None}
        lines.append(json.dumps({**_own(row, shape), **of}))
    return "\n".join(lines).encode()


def _names(shape: Shape) -> list[str]:
    return [f"f{number}" for number in range(len(shape.fields))]


def _own(row: Landed, shape: Shape) -> dict[str, Any]:
    return {"key": row.key, "value": row.value, "sent_at": _moment(row.time_us, shape.times)}


def _moment(us: int, times: str) -> Any:
    return us if times == "epoch_us" else (EPOCH + timedelta(microseconds=us)).isoformat()


def _as_json(kind: Kind, value: Any, times: str) -> Any:
    if value is None:
        return None
    if kind.name == "bytes":
        return base64.b64encode(value).decode()
    if kind.name in MOMENTS:
        return _moment(value, times)
    if kind.name == "date" or kind.name.startswith("decimal"):
        return str(value)
    if kind.name == "tuple":
        return [_as_json(kind.parts[0], each, times) for each in value]
    if kind.name == "record":
        members = zip(kind.members, value, strict=True)
        return {name: _as_json(part, of, times) for (name, part), of in members}
    if kind.name in NESTED:
        return {str(key): _as_json(kind.parts[0], of, times) for key, of in value.items()}
    return value


def _csv(rows: Sequence[Landed], shape: Shape) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["key", "value", "sent_at", *_names(shape)])
    for row in rows:
        cells = [
            _cell(kind, _as_json(kind, value, shape.times))
            for kind, value in zip(shape.fields, shape.values(row), strict=True)
        ]
        writer.writerow([*_own(row, shape).values(), *cells])
    return file.getvalue().encode()


def _cell(kind: Kind, value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value) if kind.name in (*NESTED, "bool") else str(value)


def _parquet(rows: Sequence[Landed], shape: Shape) -> bytes:
    own = {
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "sent_at": pa.array([row.time_us for row in rows], MOMENT),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({**own, **landed_columns(rows, shape)}), sink)
    return bytes(sink.getvalue())


def _as_arrow(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind.name in MOMENTS:
        return EPOCH + timedelta(microseconds=value)
    if kind.name == "tuple":
        return [_as_arrow(kind.parts[0], each) for each in value]
    if kind.name == "record":
        members = zip(kind.members, value, strict=True)
        return {name: _as_arrow(part, of) for (name, part), of in members}
    if kind.name in NESTED:
        return [(key, _as_arrow(kind.parts[0], of)) for key, of in value.items()]
    return value
