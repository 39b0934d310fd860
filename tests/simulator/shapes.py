"""The fields of a simulation's records, in addition to a key and a number, drawn from a seed.

Actions land rows of a key, a time and a number; a shape makes rows of many fields of these, always
the same ones. It says what a stream's file declares (`stream_files.py`), what producers write
(`shaped_rows.py`), and, for the oracle, what the states keep.
"""

import base64
import json
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.fold.oracle import rank
from tests.simulator.kinds import EPOCH, TEXT, Kind, draw, kinds, shown
from tests.simulator.retained import KEEPINGS

FORMATS = ("jsonl", "csv", "parquet")
TTLS = (None, 25, 40, 90, 1440)  # minutes; a key is silent after 40
# Minutes after an event; some of them together, or with the end of a state, or with silence.
TIMERS = ((), (), (20, 1440), (25, 25), (40, 25, 90), (10, 240, 10))
SILENCE = 40  # minutes
LOOKED_AT = ("written", "ordered")  # there are few fields that these fit


class Landed(NamedTuple):
    """A row that a producer has sent."""

    key: str
    time_us: int
    value: int


@dataclass(frozen=True)
class Shape:
    """The records of all streams of a simulation. By default as flat as can be.

    Numbers are those of `fields`: f0, f1, ... `key`: what groups, none: the row's own key alone.
    """

    fields: tuple[Kind, ...] = ()
    key: tuple[int, ...] = ()
    derived: bool = False  # the key is a function of these fields
    retained: tuple[tuple[str, int], ...] = ()  # the state's: how, and of which field
    ttl: int | None = None  # minutes
    by: tuple[int, ...] = ()  # what of an event was seen before, if it has been delivered again
    within: int = 60  # minutes
    timers: tuple[int, ...] = ()  # minutes: t0, t1, ...; those with an odd number are set once
    late_value: bool = False  # the source declares `value` when a stream first asks for it
    format: str | None = None  # of landed files; None: rows go straight to bronze
    times: str = "iso"
    seed: int = 0
    _known: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def ttl_us(self) -> int | None:
        return None if self.ttl is None else self.ttl * 60_000_000

    @property
    def deadlines_us(self) -> tuple[int, ...]:
        """After a row of a key: when something comes to an end by itself, if nothing more comes."""
        spans = {SILENCE, *self.timers, *((self.within,) if self.by else ())}
        return tuple(minutes * 60_000_000 for minutes in sorted(spans | {self.ttl or SILENCE}))

    # Rows

    def values(self, row: Landed) -> tuple[Any, ...]:
        """The fields of a row. Those that group have two values for each key at most."""
        if row not in self._known:
            self._known[row] = tuple(self._draw(number, row) for number in range(len(self.fields)))
        return self._known[row]  # type: ignore[no-any-return]

    def _draw(self, number: int, row: Landed) -> Any:
        seed = f"{self.seed} {number} {row.key} "
        seed += str(row.value % 2) if number in self.key else f"{row.time_us} {row.value}"
        return draw(self.fields[number], Random(seed))

    def order(self, row: Landed, with_value: bool) -> tuple[Any, ...]:
        """By time, then by the whole event, in the order of its fields."""
        asked = "order", row, with_value
        if asked not in self._known:
            values = (row.key, *self.values(row), *((row.value,) if with_value else ()))
            self._known[asked] = row.time_us, [rank(value) for value in values]
        return self._known[asked]  # type: ignore[no-any-return]

    # Keys

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of a table that have the key."""
        if not self.key:
            return ("key",)
        is_function = self.derived and len(self.key) == 1
        return ("derived",) if is_function else tuple(f"f{number}" for number in self.key)

    @property
    def key_kinds(self) -> tuple[Kind, ...]:
        return tuple(self.fields[number] for number in self.key) or (TEXT,)

    def key_of(self, row: Landed) -> tuple[Any, ...]:
        """The key in one form that can be counted, by its columns."""
        if not self.key:
            return (row.key,)
        values = self.values(row)
        parts = zip(self.key_kinds, (values[number] for number in self.key), strict=True)
        return tuple(shown(kind, derived(kind, of) if self.derived else of) for kind, of in parts)

    def key_text(self, key: tuple[Any, ...]) -> str:
        """The text of a key in the table of dead letters."""
        values = [_said(kind, of) for kind, of in zip(self.key_kinds, key, strict=True)]
        if len(values) == 1:
            return str(values[0])
        return json.dumps(dict(zip(self.key_names, values, strict=True)), ensure_ascii=False)

    def seen(self, row: Landed) -> tuple[Any, ...] | None:
        """By what the row is known again; None: it is not."""
        values = self.values(row)
        seen = tuple(shown(self.fields[number], values[number]) for number in self.by)
        return None if all(part is None for part in seen) else seen

    # States

    def begin(self) -> tuple[Any, ...]:
        return tuple(KEEPINGS[how].begins(self.fields[number]) for how, number in self.retained)

    def step(self, retained: tuple[Any, ...], n: int, row: Landed) -> tuple[Any, ...]:
        """The retained values after a row; `n` is the count before it."""
        values = self.values(row)
        each = zip(self.retained, retained, strict=True)
        return tuple(KEEPINGS[how].step(old, values[number], n) for (how, number), old in each)

    @property
    def retained_kinds(self) -> tuple[Kind, ...]:
        return tuple(KEEPINGS[how].kind(self.fields[number]) for how, number in self.retained)

    def shown(self, retained: tuple[Any, ...]) -> tuple[Any, ...]:
        """The retained values as a table has them, in a form that can be counted."""
        return tuple(
            shown(kind, of) for kind, of in zip(self.retained_kinds, retained, strict=True)
        )

    def row_of_table(self, row: dict[str, Any]) -> tuple[Any, ...]:
        """A row of a stream's table in that form."""
        named = zip(self.key_names, self.key_kinds, strict=True)
        key = (shown(kind, row[name]) for name, kind in named)
        retained = (shown(kind, row[f"g{n}"]) for n, kind in enumerate(self.retained_kinds))
        return (*key, row["what"], row["amount"], *retained)


FLAT = Shape()


def derived(kind: Kind, value: Any) -> Any:
    """The derived key of a field."""
    if value is None:
        return None
    if kind.name == "str":
        return value.lower()
    return value % 2 if kind.name == "int" else value


def _said(kind: Kind, value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, Decimal)):
        return str(value)
    if kind.name == "datetime" and value is not None:
        return (EPOCH + timedelta(microseconds=value)).isoformat()
    return value


@st.composite
def shapes(draw_one: st.DrawFn) -> Shape:
    """Any shape but the flat ones."""
    fields = tuple(draw_one(st.lists(kinds, min_size=1, max_size=4)))
    groupable = [number for number, kind in enumerate(fields) if kind.is_groupable]
    one = st.sampled_from(groupable or [0])
    some = st.lists(one, max_size=3, unique=True)
    by = st.lists(one, min_size=1, max_size=2, unique=True)
    retained = [
        (how, number)
        for number, kind in enumerate(fields)
        for how, keeping in KEEPINGS.items()
        if keeping.fits(kind)
    ]
    looked = [each for each in retained for _ in range(4) if each[0].startswith(LOOKED_AT)]
    return Shape(
        fields=fields,
        key=tuple(draw_one(some)) if groupable else (),
        derived=draw_one(st.booleans()),
        retained=tuple(
            draw_one(st.lists(st.sampled_from(retained + looked), min_size=1, max_size=4))
        ),
        ttl=draw_one(st.sampled_from(TTLS)),
        by=tuple(draw_one(st.just([]) | by)) if groupable else (),
        within=draw_one(st.sampled_from((3, 60, 600, 600))),
        timers=draw_one(st.sampled_from(TIMERS)),
        late_value=draw_one(st.booleans()),
        format=draw_one(st.sampled_from(FORMATS)),
        times=draw_one(st.sampled_from(("iso", "epoch_us"))),
        seed=draw_one(st.integers(0, 999)),
    )
