"""The types that a record's fields may have, drawn; their values in plain Python, and as text.

A value is as plain as can be, so that an oracle can reckon with it: a moment is its microseconds,
a member of an Enum its value, a record a tuple. `annotation` says what the stream's file declares,
`sql` what the source does.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from random import Random
from typing import Any

from hypothesis import strategies as st

DIGITS = Context(prec=40)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INTS = ("bigint", "int", "smallint", "tinyint")
# The source's types, and some values that all of them hold.
SCALARS: dict[str, tuple[tuple[str, ...], list[Any]]] = {
    "bool": (("boolean",), [True, False]),
    "int": (INTS, [-3, 0, 5, 127]),
    "float": (("double", "float"), [0.0, -0.0, 0.5, -1.25, 2.0**100]),
    "decimal(12,2)": (
        ("decimal(12,2)", "decimal(4,1)"),
        [Decimal(each) for each in ("1.5", "-0.5", "0", "120")],
    ),
    "decimal(38,18)": (
        ("decimal(38,18)", "decimal(20,4)"),
        [Decimal(each) for each in ("1234567890.1234", "-0.0001", "7")],
    ),
    "str": (("string",), ["a", "B", "é\u2028", "\U0001f600", '"q",;\n x', "\uffff"]),
    "bytes": (("binary",), [b"\x00", b"\xff\x01", b"a"]),
    "date": (("date",), [date(1969, 12, 31), date(2026, 1, 1), date(2024, 2, 29)]),
    "datetime": (("timestamp",), [-1, 0, 1_750_032_000_123_456]),
    "Instant": (("timestamp",), [-1, 0, 1_750_032_000_123_456]),
    "Color": (("string",), ["red", "blue"]),
    "Level": (INTS, [1, 2]),
}
NESTED = ("tuple", "dict[str]", "dict[int]", "record")
MOMENTS = ("datetime", "Instant")
ANNOTATIONS = {
    "decimal(12,2)": 'Annotated[Decimal, "decimal(12,2)"]',
    "decimal(24,2)": 'Annotated[Decimal, "decimal(24,2)"]',
    "decimal(38,18)": "Decimal",
}


@dataclass(frozen=True)
class Kind:
    """A type: one of SCALARS, or of NESTED with its parts. `sql` is that of the source."""

    name: str
    sql: str = ""
    parts: tuple["Kind", ...] = ()
    nullable: bool = False

    @property
    def is_groupable(self) -> bool:
        return self.name not in ("float", *NESTED)

    @property
    def members(self) -> Iterable[tuple[str, "Kind"]]:
        """The members of a record, by name."""
        return [(f"m{number}", part) for number, part in enumerate(self.parts)]

    def or_none(self) -> "Kind":
        return replace(self, nullable=True)


INT, FLOAT, TEXT = Kind("int", "bigint"), Kind("float", "double"), Kind("str", "string")


def draw(kind: Kind, rng: Random) -> Any:
    """A value."""
    if kind.nullable and rng.random() < 0.25:
        return None
    if kind.name not in NESTED:
        return rng.choice(SCALARS[kind.name][1])
    if kind.name == "record":
        return tuple(draw(part, rng) for part in kind.parts)
    values = [draw(kind.parts[0], rng) for _ in range(rng.randrange(3))]
    if kind.name == "tuple":
        return tuple(values)
    keys = ["k", "", "B"] if kind.name == "dict[str]" else [2, -1, 10]
    return dict(zip(rng.sample(keys, len(values)), values, strict=True))


def shown(kind: Kind, value: Any) -> Any:
    """A value, plain or as a table gives it, in one form that can be counted."""
    if value is None:
        return None
    if kind.name.startswith("decimal"):
        return with_all_digits(kind, value)
    if kind.name == "float":
        return repr(value)  # of which there are two nothings
    if kind.name in MOMENTS and isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if kind.name == "tuple":
        return tuple(shown(kind.parts[0], each) for each in value)
    if kind.name == "record":
        values = value.values() if isinstance(value, dict) else value
        return tuple(shown(part, of) for part, of in zip(kind.parts, values, strict=True))
    if kind.name in NESTED:  # a table has the pairs in their order
        pairs = sorted(value.items()) if isinstance(value, dict) else value
        return tuple((key, shown(kind.parts[0], of)) for key, of in pairs)
    return value


def with_all_digits(kind: Kind, value: Decimal) -> str:
    """The digits that its type declares; zero has no sign."""
    scale = int(kind.name.rstrip(")").split(",")[1])
    text = str(DIGITS.quantize(value, Decimal(1).scaleb(-scale)))
    return text if value else text.removeprefix("-")


# As the files of a stream have them


def named_records(kinds: Iterable[Kind]) -> dict[Kind, str]:
    """The records among types, those within others first, by their names."""
    found: dict[Kind, str] = {}
    for kind in kinds:
        for inner in named_records(kind.parts):
            found.setdefault(inner, f"Rec{len(found)}")
        if kind.name == "record":
            found.setdefault(replace(kind, nullable=False), f"Rec{len(found)}")
    return found


def annotation(kind: Kind, records: Mapping[Kind, str]) -> str:
    """The annotation of a field of a NamedTuple."""
    if kind.nullable:
        return f"{annotation(replace(kind, nullable=False), records)} | None"
    if kind.name == "record":
        return records[kind]
    if kind.name == "tuple":
        return f"tuple[{annotation(kind.parts[0], records)}, ...]"
    if kind.name in NESTED:
        return f"{kind.name[:-1]}, {annotation(kind.parts[0], records)}]"
    return ANNOTATIONS.get(kind.name, kind.name)


def classes(records: Mapping[Kind, str]) -> Iterator[str]:
    """The records themselves."""
    for kind, name in records.items():
        members = (f"    {member}: {annotation(of, records)}\n" for member, of in kind.members)
        yield f"class {name}(NamedTuple):\n{''.join(members)}"


def revived(kind: Kind, value: str, records: Mapping[Kind, str], depth: int = 0) -> str:
    """The text that makes a value again of what `migrate_state` is given, which is the text `value`."""
    if kind.nullable:
        plain = replace(kind, nullable=False)
        return f"(None if {value} is None else {revived(plain, value, records, depth)})"
    each = f"each{depth}"
    parts = [revived(part, each, records, depth + 1) for part in kind.parts]
    if kind.name == "tuple":
        return f"tuple({parts[0]} for {each} in {value})"
    if kind.name == "record":
        of = (revived(p, f'{value}["{name}"]', records, depth + 1) for name, p in kind.members)
        return f"{records[kind]}({', '.join(of)})"
    if kind.name in NESTED:
        return f"{{key: {parts[0]} for key, {each} in {value}.items()}}"
    if kind.name == "Instant":
        return f"Instant(({value} - EPOCH) // timedelta(microseconds=1))"
    return f"{kind.name}({value})" if kind.name in ("Color", "Level") else value


# Of Hypothesis

scalars = st.sampled_from(sorted(SCALARS)).flatmap(
    lambda name: st.sampled_from(SCALARS[name][0]).map(lambda sql: Kind(name, sql))
)


def _nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    # A source does not promise parts of a value.
    part = inner.map(Kind.or_none)
    one = part.map(lambda of: (of,))
    return (
        one.map(lambda of: Kind("tuple", f"array<{of[0].sql}>", of))
        | one.map(lambda of: Kind("dict[str]", f"map<string, {of[0].sql}>", of))
        | one.map(lambda of: Kind("dict[int]", f"map<bigint, {of[0].sql}>", of))
        | st.tuples(part, part).map(_record)
        | one.map(_record)
    )


def _record(parts: tuple[Kind, ...]) -> Kind:
    """The source's has more members, and in another order."""
    members = [f"m{number}: {part.sql}" for number, part in enumerate(parts)]
    return Kind("record", f"struct<{', '.join([*reversed(members), 'more: string'])}>", parts)


kinds = st.builds(
    lambda kind, nullable: replace(kind, nullable=nullable),
    scalars | scalars | st.recursive(scalars, _nested, max_leaves=3),
    st.booleans(),
)
