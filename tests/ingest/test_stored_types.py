"""Bronze has a column of each type that a field may be declared as, whoever writes it."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from include.fold.records import SCALARS, sql_type
from include.ingest.ingest import ingest
from include.ingest.parse_files import Parse
from include.lake.columns import arrow_type, sql_name
from include.lake.paths import Lake
from include.settings import Field, Source
from tests.parsers import both_parsers

AT = "2026-03-01T12:00:00Z"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
VALUES: dict[str, tuple[Any, Any]] = {
    "boolean": (True, True),
    "tinyint": (-128, -128),
    "smallint": (-(2**15), -(2**15)),
    "int": (-(2**31), -(2**31)),
    "bigint": (-(2**63), -(2**63)),
    "float": (0.25, 0.25),
    "double": (0.1, 0.1),
    "string": ("é", "é"),
    "binary": ("AAE=", b"\0\1"),
    "date": ("2026-03-01", date(2026, 3, 1)),
    "timestamp": (AT, NOON),
    "timestamp_ntz": ("2026-03-01T12:00:00", NOON.replace(tzinfo=None)),
    "decimal(38,18)": ("1.000000000000000001", Decimal("1.000000000000000001")),
    "array<map<string, date>>": ([{"a": "2026-03-01"}, None], [[("a", date(2026, 3, 1))], None]),
    "struct<at: timestamp, `a b`: array<int>>": ({"at": AT, "a b": []}, {"at": NOON, "a b": []}),
}
NAMES = {kind: f"f{number}" for number, kind in enumerate(VALUES)}
SOURCE = Source(
    name="things",
    time_field="at",
    comment="Things",
    fields=tuple(
        Field(name=name, type=kind, comment=kind, required=False) for kind, name in NAMES.items()
    ),
)


@both_parsers
def test_every_type_is_stored(lake: Lake, parse: Parse):
    assert set(SCALARS) < set(VALUES)
    row = {NAMES[kind]: landed for kind, (landed, _) in VALUES.items()}
    landing = Path(lake.landing(SOURCE.name))
    landing.mkdir(parents=True)
    (landing / "a.jsonl").write_text(f'{json.dumps({"at": AT, **row})}\n{{"at": "{AT}"}}\n')

    assert ingest(lake, SOURCE, parse=parse).rows_bronze == 2

    bronze = DeltaTable(lake.bronze(SOURCE.name)).to_pyarrow_table()
    found = {kind: bronze[name] for kind, name in NAMES.items()}
    assert [column.type for column in found.values()] == [arrow_type(kind) for kind in found]
    assert [sql_name(column.type) for column in found.values()] == [
        str(sql_type(kind)) for kind in found
    ]
    for kind, column in found.items():
        assert sorted(column.to_pylist(), key=lambda value: value is None) == [
            VALUES[kind][1],
            None,
        ], kind
