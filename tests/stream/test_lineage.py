"""Whose states serve whom: code, mapped states, and streams that begin or cease to keep dead letters."""

import pytest

from include.lake.generations import GenerationRow
from include.stream.manifest import current_lineage, serves
from include.stream.record import with_code

SAVEPOINT = "20260101T000000000000-abc"


@pytest.mark.parametrize(
    ("lineage", "wanted", "good"),
    [
        ("x", "x", True),
        ("x!", "x!", True),
        ("x", "x!", True),
        ("x!", "x", False),
        ("y", "x!", False),
        ("y!", "x!", False),
        (None, "x!", False),
        (f"x+{SAVEPOINT}", f"x!+{SAVEPOINT}", True),
        (f"x!+{SAVEPOINT}", f"x+{SAVEPOINT}", False),
        ("x", f"x!+{SAVEPOINT}", False),
        (f"x+{SAVEPOINT}", "x!", False),
    ],
)
def test_states_without_dead_letters_serve_who_keeps_them_and_never_the_other_way(
    lineage, wanted, good
):
    assert serves(lineage, wanted) is good


@pytest.mark.parametrize(
    ("known", "code", "lineage"),
    [
        (f"x+{SAVEPOINT}", "x", f"x+{SAVEPOINT}"),
        (f"x+{SAVEPOINT}", "x!", f"x!+{SAVEPOINT}"),
        (f"x!+{SAVEPOINT}", "x!", f"x!+{SAVEPOINT}"),
        (f"x!+{SAVEPOINT}", "x", "x"),
        (f"y+{SAVEPOINT}", "x!", "x!"),
        ("x", "x!", "x!"),
        (None, "x!", "x!"),
    ],
)
def test_mapped_states_stay_mapped_when_the_stream_begins_to_keep_dead_letters(
    known, code, lineage
):
    assert current_lineage({"code": known}, code) == lineage


@pytest.mark.parametrize(
    ("first", "then", "changed", "known"),
    [
        ("x", "x!", False, "x!"),
        ("x!", "x", True, "x!"),
        ("x", "y!", True, "x"),
        ("x", "x", False, "x"),
    ],
)
def test_a_generation_is_told_that_its_stream_keeps_dead_letters_from_now_on(
    first, then, changed, known
):
    """Its later savepoints carry the mark; what has dead letters does not become what stops."""
    row = with_code(GenerationRow(code=first), then, "key string")
    assert row["code"] == known
    assert (row["code_changed_at"] is not None) is changed
