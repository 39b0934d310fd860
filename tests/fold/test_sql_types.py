"""SQL types as text: one spelling, and a clear word for what is none."""

import pytest
from hypothesis import given

from include.fold.records import SqlTypeError, sql_type
from tests.sql_types import types


@given(types)
def test_a_type_reads_as_it_is_written(kind):
    assert sql_type(str(kind)) == kind


@given(types)
def test_spaces_and_case_do_not_matter_but_in_names(kind):
    if "struct" not in str(kind):
        assert sql_type(f" {str(kind).upper().replace(',', ' , ').replace('<', ' < ')} ") == kind


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("LONG", "bigint"),
        ("integer", "int"),
        ("numeric(12,2)", "decimal(12,2)"),
        ("decimal", "decimal(10,0)"),
        ("array<struct<sku string, price decimal(12,2)>>",) * 2,
    ],
)
def test_other_spellings_are_the_same_type(text, spelled):
    assert str(sql_type(text)) == spelled.replace("sku ", "sku: ").replace("price ", "price: ")


@pytest.mark.parametrize(
    "text",
    [
        *("", "interval", "decimal(39,2)", "decimal(2,3)", "decimal(two)", "decimal(1,1,1)"),
        *("array<bigint", "array<int>>", "array<int, int>", "map<string>", "bigint bigint", "int;"),
        *("struct<>", "struct<a: int, a: int>", "array<struct<a: int, A: int>>", "struct<`: int>"),
    ],
)
def test_what_is_no_type_is_refused(text):
    with pytest.raises(SqlTypeError):
        sql_type(text)
