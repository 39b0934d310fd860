"""docs/tables.md says what the tables say."""

from include.lake.ops import DESCRIPTIONS, SCHEMAS
from include.settings import PROJECT
from include.tables_page import PAGE, tables_page


def test_the_page_is_what_the_tables_say():
    assert (PROJECT / PAGE).read_text() == tables_page(), (
        f"{PAGE} is old: .venv/bin/python -m include.tables_page > {PAGE}"
    )


def test_each_ops_table_is_described():
    assert DESCRIPTIONS.keys() == SCHEMAS.keys()
