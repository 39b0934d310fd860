"""How values and counts are printed for people."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from include.lake.generations import format_result, read_result
from include.spark.submit import say
from include.text_table import value_text

AT = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("a", "a"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-0.10"), "-0.10"),
        (AT, "2026-03-01 12:00:00.500"),
        ({"sku": "ä", "price": Decimal("9.95")}, '{"sku":"ä","price":9.95}'),
        ([True, None, 1.5, date(2026, 3, 1)], '[true,null,1.5,"2026-03-01"]'),
        ({1: {"at": AT}}, '{"1":{"at":"2026-03-01 12:00:00.500"}}'),
    ],
)
def test_a_value_is_printed_as_people_write_it(value, text):
    assert value_text(value) == text


def test_a_table_shows_no_python_and_is_cut_on_a_terminal_alone(lake):
    items = [{"sku": "a" * 90, "price": Decimal("9.95")}]
    row = {"key": ["k"], "items": [items], "by": [[("de", Decimal("1.50"))]]}
    price = pa.decimal128(12, 2)
    columns = {
        "key": pa.string(),
        "items": pa.list_(pa.struct([("sku", pa.string()), ("price", price)])),
        "by": pa.map_(pa.string(), price),
    }
    write_deltalake(lake.table("orders"), pa.table(row, schema=pa.schema(list(columns.items()))))
    result = read_result(lake, "orders")
    assert result is not None
    whole, short = format_result(result), format_result(result, 20)
    assert json.dumps([{"sku": "a" * 90, "price": 9.95}], separators=(",", ":")) in whole
    assert '{"de":1.50}' in whole
    assert '[{"sku":"aaaaaaaa...' in short
    assert max(map(len, short.splitlines())) < 60


def test_no_command_to_a_terminal_comes_from_data(capsys):
    say("a\x1b[2Jb\x9b\r\x07\u202ec\ud800 \u00e9\tx\n")
    assert capsys.readouterr().out == "a\\x1b[2Jb\\x9b\\r\\x07\\u202ec\\ud800 \u00e9\tx\n\n"
