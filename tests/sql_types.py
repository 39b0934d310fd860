"""SQL types and values of them, for property tests."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from include.fold.records import SCALARS, SqlType

names = st.lists(st.text("abz_ é-9", min_size=1, max_size=5), min_size=1, max_size=3, unique=True)
scalars = st.sampled_from(SCALARS).map(SqlType)


@st.composite
def decimals(draw: st.DrawFn) -> SqlType:
    precision = draw(st.integers(1, 38))
    return SqlType("decimal", precision=precision, scale=draw(st.integers(0, precision)))


# A key is there once, and of floats it is not sure what is the same.
keys = st.sampled_from([s for s in SCALARS if s not in ("float", "double")]).map(SqlType)


def _nested(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    @st.composite
    def structs(draw: st.DrawFn) -> SqlType:
        fields = draw(names)
        return SqlType("struct", tuple(draw(inner) for _ in fields), tuple(fields))

    arrays = inner.map(lambda item: SqlType("array", (item,)))
    maps = st.tuples(keys | decimals(), inner).map(lambda parts: SqlType("map", parts))
    return structs() | arrays | maps


types = st.recursive(scalars | decimals(), _nested, max_leaves=6)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
SCALAR_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": texts,
    "binary": st.binary(max_size=4),
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),  # noqa: DTZ001
} | {
    name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for name, bits in (("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64))
}


def values_of(kind: SqlType) -> st.SearchStrategy[Any]:
    """Values that Arrow makes a column of this type of."""
    parts = [values_of(part) for part in kind.parts]
    if kind.name == "decimal":
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(lambda n: Decimal(f"{n}e-{kind.scale}"))
    if kind.name == "array":
        return st.lists(st.none() | parts[0], max_size=3)
    if kind.name == "struct":
        members = [st.none() | part for part in parts]
        return st.fixed_dictionaries(dict(zip(kind.names, members, strict=True)))
    if kind.name == "map":
        return st.dictionaries(parts[0], st.none() | parts[1], max_size=3).map(
            lambda found: list(found.items())
        )
    return SCALAR_VALUES[kind.name]
