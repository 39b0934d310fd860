"""A stream's definition: its records, key, state function, and how its table is made of their outputs."""

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple, get_type_hints

from include.fold.admission import LAST_INSTANT_US, MICROSECOND, NEVER_US
from include.fold.group_state import (
    TIMEOUTS,
    GroupState,
    GroupStateTimeout,
    check_timers,
    span_us,
    timers_column,
)
from include.fold.records import (
    Column,
    DefinitionError,
    Items,
    Nested,
    Scalar,
    Shape,
    columns_of,
    is_plainly,
    nested,
    record_of,
    shape_of,
    wrong,
)

EVENT_TIME_US = "event_time_us"
INGESTED_AT_US = "ingested_at_us"
EMITTED_AT = "emitted_at"
EMITTED_AT_US = f"{EMITTED_AT}_us"
REMOVED = "removed"  # an update stream's mark of a key whose state is gone
EMITTED_DATE = "emitted_date"
RESERVED_IN_OUTPUTS = {EMITTED_AT, EMITTED_AT_US, EMITTED_DATE, REMOVED}
RESERVED_IN_STATES = {"key", "changed_at_us", "timeout_at_us"}
KEY = "_key"  # the column of an event's key that is computed by a function

Key = Any  # a value of the fold's `keys.shape`
OutputMode = Literal["append", "update"]
OnError = Literal["stop", "dead_letter"]
StateFunction = Callable[[Any, Iterator[Any], GroupState[Any]], Iterator[Any]]
Projection = Callable[[Any, Any], Any]
MigrateState = Callable[[dict[str, Any]], Any]


GivenKey = str | tuple[str, ...] | Callable[[Any], Any]


@dataclass(frozen=True)
class FoldKey:
    """The key of each event; of several columns a NamedTuple of theirs."""

    names: tuple[str, ...]  # of its columns in outputs
    shape: Shape
    of: Callable[[Any], Any]  # of an event
    is_derived: bool  # computed by a function of the event

    @property
    def kind(self) -> str:
        return self.shape.kind

    @property
    def parts(self) -> tuple[Column, ...]:
        if isinstance(self.shape, Nested):
            return self.shape.parts
        return (Column(self.names[0], self.shape),)

    def values(self, key: Any) -> dict[str, Any]:
        """The columns of one key."""
        return dict(zip(self.names, key if isinstance(self.shape, Nested) else (key,), strict=True))

    def text(self) -> str:
        """The names of its columns: `user_id`, `country, customer_id`."""
        return ", ".join(self.names)


def fold_key(given: GivenKey, event: Any, columns: Sequence[Column]) -> FoldKey:
    """The key that a stream's file declares; DefinitionError for one that cannot group."""
    if callable(given):
        return _derived(given)
    known = {column.name: column for column in columns}
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or len(set(names)) < len(names):
        raise wrong("key", f"is {given!r}: it must name a field, or several, each once")
    for name in names:
        if name not in known:
            raise wrong(name, f"of key= is no field of {event.__name__}: {', '.join(known)}")
    shapes = [_groupable(name, known[name].shape) for name in names]
    if len(names) == 1:
        return FoldKey(names, shapes[0], attrgetter(*names), is_derived=False)
    positions = [event._fields.index(name) for name in names]
    take = itemgetter(*positions)
    record: Any = namedtuple("Key", names)  # type: ignore[misc]
    shape = nested(record, [known[name] for name in names])
    return FoldKey(names, shape, lambda one: record._make(take(one)), is_derived=False)


def _derived(function: Callable[[Any], Any]) -> FoldKey:
    name = getattr(function, "__name__", repr(function))
    hint = get_type_hints(function, include_extras=True).get("return")
    if hint is None:
        raise wrong(name, "groups events, but has no return type: def email(order: Order) -> str")
    shape = shape_of(hint, name)
    if isinstance(shape, Nested) and not shape.nullable:
        names = tuple(part for part, _ in shape.parts)
        for part, of in shape.parts:
            _groupable(part, of)
    else:
        names, shape = (name,), _groupable(name, shape)

    def key_of(event: Any) -> Any:
        return shape.stored(function(event), f"key {name}")

    return FoldKey(names, shape, key_of, is_derived=True)


def _groupable(name: str, shape: Shape) -> Shape:
    if not isinstance(shape, Scalar) or shape.plain is float:
        raise wrong(name, f"of key= is {shape.kind}, by which nothing is grouped")
    return shape


SEEN = "seen"  # the column of the values that a key has folded


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """An event is a duplicate if its key has folded one with the same `by` in the time `within` before it.

    Decided in the order and by the clock of the fold, before the state function is called: by events alone.
    """

    by: str | tuple[str, ...]  # the fields by which an event is known again
    within: timedelta  # how long after the event that was folded, on the stream's clock

    def __post_init__(self) -> None:
        if span_us("deduplicate", self.within) > NEVER_US - LAST_INSTANT_US:
            raise wrong("deduplicate", f"within={self.within} must be 10,000 years at most")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.by,) if isinstance(self.by, str) else tuple(self.by)

    @property
    def within_us(self) -> int:
        return self.within // MICROSECOND

    def __str__(self) -> str:
        return f"by {', '.join(self.names)} within {self.within}"


class Seen(NamedTuple):
    """A value that a key has folded, and the instant at which it first did."""

    by: Any
    at_us: int


@dataclass(frozen=True)
class SeenValues:
    """The values by which a fold's duplicates are found, and the column in which they are stored."""

    of: Callable[[Any], Any]  # of an event; None for one without a value
    column: Column
    within_us: int

    def is_over(self, at_us: int, until_us: int) -> bool:
        """True if no event from `until_us` on can be a duplicate of one at `at_us`."""
        return at_us + self.within_us < until_us


def seen_values(given: Deduplicate, event: Any, columns: Sequence[Column]) -> SeenValues:
    """Return the values that are declared; DefinitionError for fields that are missing, or floats."""
    try:
        key = fold_key(given.names, event, columns)
    except DefinitionError as error:
        raise wrong("deduplicate", f"by={given.by!r}: {error.message}") from error
    is_one = len(given.names) == 1
    # The fields are named: values of others are not to be taken for theirs.
    by = f"by_{given.names[0]}" if is_one else "by"
    each = nested(Seen, [Column(by, key.shape), Column("at_us", Scalar("bigint", False, int))])
    items = Items(f"array<{each.kind}>", True, each)

    def value(event: Any) -> Any:
        found = key.of(event)
        return None if all(part is None for part in found) else found

    return SeenValues(key.of if is_one else value, Column(SEEN, items), given.within_us)


@dataclass(frozen=True, kw_only=True)
class KeyedFold:
    """A state function over the events of each key, and the schemas around it.

    An `append` stream's table holds all outputs, an `update` stream's one row per key of the
    state, `project(key, state)`: of the state alone, so that a savepoint can rebuild the table.
    """

    function: StateFunction
    key: GivenKey  # a field of the events, several, or a function of an event
    event: type  # NamedTuple of the events' fields that the function reads
    state: type  # NamedTuple of the state's fields: the stored schema
    output: type  # NamedTuple of the table's columns
    output_mode: OutputMode  # "append": all outputs; "update": the newest row of each key
    project: Projection | None = None  # of an update stream: the row of a key and its state alone
    timeout: str = GroupStateTimeout.NoTimeout  # EventTimeTimeout or ProcessingTimeTimeout
    # The timeout of a key of the initial state without a `timeout_at`, counted from `as_of`.
    initial_timeout: timedelta | None = None
    # A state that no call has touched for so long, on the stream's clock, is removed.
    ttl: timedelta | None = None
    timers: tuple[str, ...] = ()  # names of timers that the function sets beside its timeout
    # These three are set from the stream's entry.
    stream: str = ""
    on_error: OnError = "stop"
    deduplicate: Deduplicate | None = None

    def __post_init__(self) -> None:
        _refuse_other("timeout", self.timeout, ("NoTimeout", *TIMEOUTS.values()))
        _refuse_other("output_mode", self.output_mode, ("append", "update"))
        _refuse_other("on_error", self.on_error, ("stop", "dead_letter"))
        _ = self.keys  # raises for a wrong one
        _check_names(self.output, RESERVED_IN_OUTPUTS)
        _check_names(self.state, RESERVED_IN_STATES)
        if not self.state_columns:
            raise wrong("state", f"{self.state.__name__} has no field")
        check_timers(self.timers)
        for name, given in {"initial_timeout": self.initial_timeout, "ttl": self.ttl}.items():
            if given is not None and span_us(name, given) > NEVER_US - LAST_INSTANT_US:
                raise wrong(name, f"is {given}, which ends before no year 9999: leave it out")
        if not self.times_out and (self.timers or self.initial_timeout is not None):
            subject = "timers" if self.timers else "initial_timeout"
            raise wrong(subject, "needs a timeout= that is not NoTimeout")
        _ = self.extra
        if self.output_mode == "update":
            self._check_update()

    def _check_update(self) -> None:
        if self.project is None:
            raise wrong("project", "is missing: an update stream needs it")
        kinds = {column.name: column.kind for column in self.output_columns}
        for name, shape in self.keys.parts:
            if kinds.get(name) != shape.kind:
                raise wrong(f"{self.output.__name__}.{name}", f"must be {shape.kind}, as the key")

    def __getstate__(self) -> dict[str, Any]:
        """Return the given fields alone: not all that is made of them can be pickled."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    # Cached: an engine asks for each bucket and batch, and reading type hints is slow.
    @cached_property
    def event_columns(self) -> tuple[Column, ...]:
        return columns_of(self.event)

    @cached_property
    def state_columns(self) -> tuple[Column, ...]:
        return columns_of(self.state)

    @cached_property
    def state_shape(self) -> Nested:
        """The shape of a state; None for a key without one."""
        return nested(self.state, self.state_columns, nullable=True)

    @cached_property
    def output_columns(self) -> tuple[Column, ...]:
        """The columns of an output; in an update stream all but the key may be None, as of a removed state."""
        columns = columns_of(self.output)
        if self.output_mode == "append":
            return columns
        known = self.keys.names
        return tuple(
            c if c.name in known else Column(c.name, replace(c.shape, nullable=True))
            for c in columns
        )

    @cached_property
    def keys(self) -> FoldKey:
        return fold_key(self.key, self.event, self.event_columns)

    @cached_property
    def usual_state(self) -> tuple[tuple[Any, Column], ...]:
        """The state's columns, each with the type whose values are stored unchanged, if there is one."""
        return tuple((column.plain, column) for column in self.state_columns)

    @cached_property
    def usual_outputs(self) -> tuple[tuple[Any, Column], ...]:
        return tuple((column.plain, column) for column in self.output_columns)

    @cached_property
    def has_plain_state(self) -> bool:
        return all(column.is_plain for column in self.state_columns)

    def stored(self, state: Any) -> Any:
        """Return the state as the store gives it back; TypeError or UnicodeEncodeError if it cannot be stored."""
        state = record_of(self.state, state)
        for (plain, _), value in zip(self.usual_state, state, strict=True):
            if not is_plainly(value, plain):
                break
        else:
            return state
        values = zip(self.state_columns, state, strict=True)
        return self.state._make(of.shape.stored(each, of.name) for of, each in values)  # type: ignore[attr-defined]

    def group_state(self) -> GroupState[Any]:
        stored = None if self.has_plain_state else self.stored
        return GroupState(self.timeout, stored, self.timers)

    @cached_property
    def seen(self) -> SeenValues | None:
        if self.deduplicate is None:
            return None
        return seen_values(self.deduplicate, self.event, self.event_columns)

    @cached_property
    def extra(self) -> tuple[Column, ...]:
        """The columns of a key besides its state and timeout: values seen, timers; most folds have none."""
        seen = () if self.seen is None else (self.seen.column,)
        return (*seen, timers_column(self.timers)) if self.timers else seen

    @cached_property
    def calls_per_event(self) -> bool:
        """True unless one call with all complete events of a key gives the same table.

        One call is not enough where timeouts can come between, where calls may be dead letters (one for
        two events would make letters of both, or none), or where storing changes a state.
        """
        is_one_row = self.output_mode == "update" and not self.wakes
        return not is_one_row or self.keeps_dead_letters or not self.has_plain_state

    @property
    def keeps_dead_letters(self) -> bool:
        """True if a call that fails is recorded, and is as if it had never been made."""
        return self.on_error == "dead_letter"

    @property
    def times_out(self) -> bool:
        return self.timeout != GroupStateTimeout.NoTimeout

    @property
    def ttl_us(self) -> int | None:
        return None if self.ttl is None else self.ttl // MICROSECOND

    @property
    def wakes(self) -> bool:
        """True if a key without a new event can change: by a timeout, a timer or its time-to-live."""
        return self.times_out or self.ttl is not None

    @property
    def changes_by_clock(self) -> bool:
        """True if time alone changes what is stored, so that buckets without new events are visited."""
        return self.wakes or self.seen is not None

    @property
    def in_processing_time(self) -> bool:
        return self.timeout == GroupStateTimeout.ProcessingTimeTimeout

    @property
    def time_us(self) -> str:
        return INGESTED_AT_US if self.in_processing_time else EVENT_TIME_US


@dataclass(frozen=True)
class Definition:
    """A stream's fold, its table's title and comments, and the function that migrates older states."""

    fold: KeyedFold
    title: str
    comments: Mapping[str, str]
    migrate_state: MigrateState | None = None


def _refuse_other(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise wrong(name, f"is {value!r}, and none of {', '.join(known)}")


def _check_names(record: type, added: set[str]) -> None:
    known = set(added)
    for column in columns_of(record):
        name = column.name.lower()  # to Spark names have no case
        if name in known:
            said = (
                f"has the name of another field, or of an added column: {', '.join(sorted(added))}"
            )
            raise wrong(f"{record.__name__}.{column.name}", said)
        known.add(name)


def flat_map_groups_with_state(function: StateFunction, **settings: Any) -> KeyedFold:
    """Return a fold whose function yields any number of outputs; `settings` as in KeyedFold."""
    return KeyedFold(function=function, **settings)


def map_groups_with_state(
    function: Callable[[Any, Iterator[Any], GroupState[Any]], Any], **settings: Any
) -> KeyedFold:
    """Return a fold whose function returns exactly one output per call; `settings` as in KeyedFold."""
    return KeyedFold(function=ExactlyOne(function), **settings)


@dataclass(frozen=True)
class ExactlyOne:
    """A `map` function, of one output per call, as a `flat_map` function."""

    function: Callable[[Any, Iterator[Any], GroupState[Any]], Any]

    def __call__(self, key: Any, events: Iterator[Any], state: GroupState[Any]) -> Iterator[Any]:
        output = self.function(key, events, state)
        if not isinstance(output, tuple):
            raise wrong(
                self.function.__name__,
                f"must return exactly one output, not {output!r}; "
                "for none or several use flat_map_groups_with_state",
            )
        return iter((output,))


# The live engine's state variables, each a value per bucket. Keys are apart, as most batches bring no
# new ones: they are not written again then.
KEYS, BUCKET_STATE = "bucket_keys", "bucket_state"
DEAD_LETTERS_DDL = (
    "key string, at_us bigint, number int, cause string, event string, error string, "
    "message string, traceback string"
)


def event_ddl(fold: KeyedFold) -> str:
    """Return `event_schema` as Spark DDL."""
    text = ddl(fold.event_columns)
    if fold.time_us not in {column.name for column in fold.event_columns}:
        text += f", `{fold.time_us}` bigint"
    return f"{text}, `{KEY}` {fold.keys.kind}" if fold.keys.is_derived else text


def ddl(columns: tuple[Column, ...]) -> str:
    """Return columns as Spark DDL: `user_id string, total_count bigint`."""
    return ", ".join(f"`{column.name}` {column.kind}" for column in columns)


def output_ddl(fold: KeyedFold) -> str:
    """Return `output_schema` as Spark DDL."""
    text = f"{ddl(fold.output_columns)}, {EMITTED_AT_US} bigint"
    return f"{text}, {REMOVED} boolean" if fold.output_mode == "update" else text


def state_rows_ddl(fold: KeyedFold) -> str:
    """Return the DDL of a key's state with its bucket: a generation is bound to it."""
    return f"bucket int, {state_ddl(fold)}"


def state_ddl(fold: KeyedFold) -> str:
    """Return `state_schema` as Spark DDL; `state` is null for a key that has only a timeout."""
    extra = "".join(f", {column.name} {column.kind}" for column in fold.extra)
    return (
        f"key {fold.keys.kind}, state {fold.state_shape.kind}, changed_at_us bigint, "
        f"timeout_at_us bigint{extra}"
    )


class KeyRun(NamedTuple):
    """The complete events of one key: positions [start, end) of the bucket's ordered events."""

    key: Key
    start: int
    end: int


class DeadLetter(NamedTuple):
    """One call of the state function that failed; all texts are bounded, and valid UTF-8."""

    key: str  # as text, whatever its type
    at_us: int  # of the event or timeout, on the fold's clock
    number: int  # among those of the key at that instant, from 0
    cause: str  # "event" or "timeout"
    event: str | None  # JSON; None for a timeout
    error: str  # the class of the exception
    message: str
    traceback: str | None  # from the state function on; None when it had returned by then


class Emitted(NamedTuple):
    """The outputs of a pass; of an update stream one row per key that was called."""

    rows: list[Any]
    emitted_at_us: list[int]  # of each row: the time of its event or timeout
    removed: list[bool]  # of each row of an update stream: the key's state is gone
    dead_letters: Sequence[DeadLetter] = ()
    duplicates: int = 0  # events that were not given to the function
