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
    ("text", "says"),
    [
        ("", "expected a type at its end"),
        ("bolean", "Did you mean boolean?"),
        ("decimal(39,2)", "digits are 1 to 38"),
        ("decimal(2,3)", "digits are 1 to 38"),
        ("decimal(two)", "'two' is no number of digits"),
        ("array<bigint", "expected > at its end"),
        ("map<string>", "expected , at '>'"),
        ("struct<>", "'>' is no field's name"),
        ("struct<a: int, a: int>", "the field a is there twice"),
        ("array<struct<a: int, A: int>>", "the fields a and A differ in case alone"),
        ("bigint bigint", "nothing was expected after bigint at 'bigint'"),
        ("array<int>>", "nothing was expected after array<int> at '>'"),
        ("interval", "unknown type 'interval'"),
    ],
)
def test_what_is_wrong_is_said(text, says):
    with pytest.raises(SqlTypeError) as caught:
        sql_type(text)
    assert says in str(caught.value)
