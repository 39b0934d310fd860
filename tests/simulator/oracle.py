"""The rows that the tables of a simulation must hold, computed a second time, plainly.

It imports nothing of the project: what it shares with it is what the design promises. Instants
are microseconds since 1970. What rows hold beside a key and a value says a `Shape`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from tests.simulator.shapes import FLAT, Shape
from tests.simulator.shapes import Landed as Landed

SILENCE_US = 40 * 60_000_000  # of `silences`: a key that long without a row is silent
SILENT, ENDED = -1, 99  # before the timers of an instant, and after them
FAILS = 3  # the value that the function of variant e fails for
MAPPED_VALUE = 50  # what `migrate_state` takes the value of each old row for


class Commit(NamedTuple):
    """The rows of one ingest run. Without rows: a heartbeat that says `clock_us`, or
    a repair, by which the source's clock shows `reset_us` from then on, whatever it showed."""

    now_us: int
    rows: tuple[Landed, ...]
    clock_us: int | None = None
    reset_us: int | None = None


class Marks(NamedTuple):
    """The stamps of the rows of a commit."""

    arrival_us: int | None
    commit_us: int
    ingested_us: int


def plain_marks(commits: Sequence[Commit]) -> list[Marks]:
    marks: list[Marks] = []
    for commit in commits:
        before = marks[-1] if marks else None
        now_us = commit.now_us // 1000 * 1000
        at_us = now_us if before is None else max(now_us, before.ingested_us + 1000)
        clock_us = None if before is None else before.commit_us
        if commit.reset_us is not None:
            marks.append(Marks(clock_us, commit.reset_us // 1000 * 1000, at_us))
            continue
        times = [row.time_us for row in commit.rows] or [commit.clock_us]
        newest_us = min(max(times), at_us) // 1000 * 1000
        after_us = newest_us if clock_us is None else max(newest_us, clock_us)
        marks.append(Marks(clock_us, after_us, at_us))
    return marks


def clock_us(commits: Sequence[Commit], idle_us: int | None = None) -> int | None:
    """The source's clock after all commits; None before the first."""
    marks = plain_marks(commits) if idle_us is None else grouped_marks(commits, idle_us)
    return marks[-1].commit_us if marks else None


def grouped_marks(
    commits: Sequence[Commit], idle_us: int, known: Sequence[Marks] = ()
) -> list[Marks]:
    """The marks of each commit, of a source whose clock is that of its keys: the least that those
    which are not idle have reached. Each is found from all that came before it, anew.

    `known`: of the first commits.
    """
    marks = list(known)
    for number in range(len(marks), len(commits)):
        commit, before = commits[number], marks[-1] if marks else None
        now_us = commit.now_us // 1000 * 1000
        at_us = now_us if before is None else max(now_us, before.ingested_us + 1000)
        instants = [*(mark.ingested_us for mark in marks), at_us]
        arrival_us = before.commit_us if before is not None else None
        if commit.reset_us is not None:
            marks.append(Marks(arrival_us, commit.reset_us // 1000 * 1000, at_us))
            continue
        reached = list(_reached(commits[: number + 1], instants, idle_us).values())
        if commit.clock_us is not None:
            reached.append(min(commit.clock_us, at_us) // 1000 * 1000)
        after_us = min(reached) if arrival_us is None else max(min(reached), arrival_us)
        marks.append(Marks(arrival_us, after_us, at_us))
    return marks


def _reached(commits: Sequence[Commit], instants: Sequence[int], idle_us: int) -> dict[str, int]:
    """The newest instant of each key that is not idle, after the last of the commits."""
    reached, seen = dict[str, int](), dict[str, int]()
    for number, (commit, at_us) in enumerate(zip(commits, instants, strict=True)):
        if commit.reset_us is not None:
            back_us = commit.reset_us // 1000 * 1000
            reached = {key: min(us, back_us) for key, us in reached.items()}
        for row in commit.rows:
            us = min(row.time_us, at_us) // 1000 * 1000
            reached[row.key] = max(us, reached.get(row.key, us))
            seen[row.key] = number
    pauses = [min(b - a, idle_us // 2) for a, b in pairwise(instants)]
    return {key: us for key, us in reached.items() if sum(pauses[seen[key] :]) < idle_us}


class Stamped(NamedTuple):
    """A landed row with what ingestion knew when it came."""

    row: Landed
    arrival_us: int | None  # the source's clock before its commit; None in the first
    commit_us: int
    ingested_us: int


class Emitted(NamedTuple):
    """A row of a table, and its `emitted_at`."""

    row: tuple[Any, ...]
    at_us: int


@dataclass
class Key:
    """The state of a key."""

    n: int = 0
    total: int = 0
    timeout_us: int | None = None
    changed_us: int = 0
    retained: tuple[Any, ...] = ()


@dataclass
class Folded:
    """A fold up to an instant."""

    keys: dict[tuple[Any, ...], Key] = field(default_factory=dict)
    outputs: list[Emitted] = field(default_factory=list)
    dead_letters: list[tuple[str, int]] = field(default_factory=list)
    seen: dict[tuple[Any, ...], int] = field(default_factory=dict)  # of a key and what it has seen
    timers: dict[tuple[Any, ...], dict[int, int]] = field(default_factory=dict)  # by their numbers


def stamped(commits: Sequence[Commit], idle_us: int | None = None) -> list[Stamped]:
    """The rows of all commits, in order. `idle_us`: of a source whose clock is that of its keys."""
    marks = plain_marks(commits) if idle_us is None else grouped_marks(commits, idle_us)
    each = zip(commits, marks, strict=True)
    return [Stamped(row, *mark) for commit, mark in each for row in commit.rows]


def until_us(commits: Sequence[Commit], delay_us: int, idle_us: int | None = None) -> int | None:
    """Before which instant all in time has come; None before the first commit."""
    now_us = clock_us(commits, idle_us)
    return None if now_us is None else now_us - delay_us + 1


def is_late(row: Stamped, delay_us: int) -> bool:
    return row.arrival_us is not None and row.row.time_us <= row.arrival_us - delay_us


def in_time(rows: Iterable[Stamped], delay_us: int) -> list[Landed]:
    """The rows that a live stream folds."""
    return [row.row for row in rows if not is_late(row, delay_us)]


def outputs(kind: str, variant: str, rows: Iterable[Landed], until_us: int) -> list[Emitted]:
    """All that an append stream emits before an instant."""
    return folded(kind, variant, rows, until_us).outputs


def projection(
    kind: str, variant: str, rows: Iterable[Landed], until_us: int
) -> dict[tuple[Any, ...], Emitted]:
    """An update table's row of each key, of the state at an instant."""
    assert kind == "counts_per_key"
    return rows_of_keys(variant, folded(kind, variant, rows, until_us))


def rows_of_keys(
    variant: str, known: Folded, shape: Shape = FLAT
) -> dict[tuple[Any, ...], Emitted]:
    """An update table's row of each key."""
    return {
        name: _row(shape, variant, name, "count", key, key.changed_us)
        for name, key in known.keys.items()
    }


def mapped(before: Folded) -> Folded:
    """The states of variant a as `migrate_state` makes states of variant d of them."""
    keys = {name: replace(key, total=key.n * MAPPED_VALUE) for name, key in before.keys.items()}
    return Folded(keys, seen=before.seen, timers=before.timers)


def folded(
    kind: str,
    variant: str,
    rows: Iterable[Landed],
    until_us: int,
    base: Folded | None = None,
    shape: Shape = FLAT,
) -> Folded:
    """The rows before an instant, folded into the states of `base`, which may not have them.

    Its outputs are those since the base.
    """
    fold = _Fold(kind, variant, shape)
    if base is not None:
        fold.result.keys = {name: replace(key) for name, key in base.keys.items()}
        fold.result.seen = dict(base.seen)
        fold.result.timers = {name: dict(of) for name, of in base.timers.items()}
    before = (row for row in rows if row.time_us < until_us)
    for row in sorted(before, key=lambda row: shape.order(row, variant in "cde")):
        fold.take(row)
    for name in list(fold.result.keys | fold.result.timers):
        fold.pass_time(name, until_us)
    return fold.result


@dataclass
class _Fold:
    """The rows of all keys, one after the other."""

    kind: str
    variant: str
    shape: Shape
    result: Folded = field(default_factory=Folded)

    def take(self, row: Landed) -> None:
        name = self.shape.key_of(row)
        if self._is_seen(name, row):
            return
        self.pass_time(name, row.time_us)
        if fails(self.variant, row):  # as if it had never come
            self.result.dead_letters.append((self.shape.key_text(name), row.time_us))
            return
        woke = name not in self.result.keys
        key = self.result.keys.setdefault(name, Key(retained=self.shape.begin()))
        key.retained = self.shape.step(key.retained, key.n, row)
        key.n += weight(self.variant, row)
        key.total += row.value
        key.changed_us = row.time_us
        self._set_timers(name, row.time_us)
        if self.kind == "silences":
            key.timeout_us = row.time_us + SILENCE_US
            if woke:
                self._emit(name, "woke", row.time_us)
        elif self.kind == "counts":
            self._emit(name, "count", row.time_us)

    def _is_seen(self, name: tuple[Any, ...], row: Landed) -> bool:
        seen = self.shape.seen(row)
        if seen is None:
            return False
        first_us = self.result.seen.get((name, seen))
        if first_us is not None and row.time_us - first_us <= self.shape.within * 60_000_000:
            return True
        self.result.seen[name, seen] = row.time_us
        return False

    def pass_time(self, name: tuple[Any, ...], before_us: int) -> None:
        """A key falls silent, its timers fire, or its state ends as nothing has touched it."""
        while due := [each for each in self._due(name) if each[0] < before_us]:
            at_us, what = min(due)
            if what == SILENT:
                self._emit(name, "silent", at_us)
                del self.result.keys[name]
            elif what == ENDED:
                del self.result.keys[name]
                self.result.timers.pop(name, None)
            else:
                self._fire(name, what, at_us)

    def _due(self, name: tuple[Any, ...]) -> Iterator[tuple[int, int]]:
        """The timeouts of a key, in this order at one instant."""
        key = self.result.keys.get(name)
        if key is not None and key.timeout_us is not None:
            yield key.timeout_us, SILENT
        for number, at_us in self.result.timers.get(name, {}).items():
            yield at_us, number
        if key is not None and self.shape.ttl_us is not None:
            yield key.changed_us + self.shape.ttl_us, ENDED

    def _fire(self, name: tuple[Any, ...], number: int, at_us: int) -> None:
        del self.result.timers[name][number]
        key = self.result.keys.get(name)
        if key is None:
            return
        key.n = (key.n * 3 + number + 1) % 1_000_003
        key.changed_us = at_us
        if self.kind == "silences":
            key.timeout_us = at_us + SILENCE_US
        if self.kind != "counts_per_key":
            self._emit(name, f"t{number}", at_us)

    def _set_timers(self, name: tuple[Any, ...], at_us: int) -> None:
        timers = self.result.timers.setdefault(name, {})
        for number, minutes in enumerate(self.shape.timers):
            if number % 2 == 0 or number not in timers:
                timers[number] = at_us + minutes * 60_000_000

    def _emit(self, name: tuple[Any, ...], what: str, at_us: int) -> None:
        key = self.result.keys[name]
        self.result.outputs.append(_row(self.shape, self.variant, name, what, key, at_us))


def _row(
    shape: Shape, variant: str, name: tuple[Any, ...], what: str, key: Key, at_us: int
) -> Emitted:
    return Emitted((*name, what, amount(variant, key), *shape.shown(key.retained)), at_us)


def fails(variant: str, row: Landed) -> bool:
    """True if the function raises for a row."""
    return variant == "e" and row.value == FAILS


def weight(variant: str, row: Landed) -> int:
    """The count of a row: variant c reads a field that a and b do not have."""
    return 2 if variant == "c" and row.value % 2 == 0 else 1


def amount(variant: str, key: Key) -> int:
    """The amount that the table shows of a key."""
    if variant == "b":
        return key.n * 1000
    return key.n * 1000 + key.total if variant == "d" else key.n
