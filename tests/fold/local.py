"""The local engine: the fold in one Python process, for tests and as an oracle.

It takes batches cut in any way, as the live engine does, and shares with it only the
state function's own loop: what is late, what is complete and in which order is written here
a second time, plainly.
"""

from collections.abc import Iterable
from decimal import localcontext
from typing import Any, NamedTuple

from include.fold.admission import is_late, until_us, watermark_us
from include.fold.calls import fold_runs
from include.fold.definition import DeadLetter, Emitted, Key, KeyedFold, KeyRun
from include.fold.failures import ARITHMETIC, BrokenInvariantError
from include.fold.states import KeyState, States
from tests.fold.oracle import rank


class BronzeRow(NamedTuple):
    """An event with what ingestion decided about it. `arrival_us` is None in a first commit.

    In processing time `time_us` and `commit_us` are when its commit was ingested. A clock
    row has no event.
    """

    event: Any
    time_us: int
    arrival_us: int | None
    commit_us: int


class LocalFold:
    """A fold's states, pending events and outputs, in memory.

    `initial` are states as of the instant `since_us`; rows before that are left out.
    """

    def __init__(
        self,
        fold: KeyedFold,
        delay_us: int,
        buckets: int = 1,
        since_us: int | None = None,
        initial: Iterable[KeyState] = (),
    ) -> None:
        self._fold = fold
        self._delay_us = delay_us
        self._since_us = since_us
        self._key_of = fold.keys.of
        self._buckets = [_Bucket(fold) for _ in range(buckets)]
        for known in initial:
            self._buckets[hash(known.key) % buckets].states.put(*known)
        self.late = 0
        self.excluded = self.duplicates = 0
        self.emitted = Emitted([], [], [])
        self.dead_letters: list[DeadLetter] = []

    def run_batch(self, rows: Iterable[BronzeRow]) -> None:
        """Fold a batch of whole commits, and then what its watermark completes in other buckets."""
        with localcontext(ARITHMETIC):
            self._run_batch(rows)

    def _run_batch(self, rows: Iterable[BronzeRow]) -> None:
        shares: dict[int, list[BronzeRow]] = {}
        watermark = None
        for row in rows:
            watermark = row.commit_us if watermark is None else max(watermark, row.commit_us)
            shares.setdefault(self._bucket_of(row), []).append(row)
        if watermark is None:
            return
        for index, share in shares.items():
            self._run_bucket(self._buckets[index], share)
        for bucket in self._buckets:
            self._fold_bucket(bucket, watermark_us(watermark, self._delay_us))

    def _run_bucket(self, bucket: "_Bucket", rows: list[BronzeRow]) -> None:
        for row in rows:
            if row.event is None:
                continue
            if self._late(row):
                self.late += 1
            elif self._since_us is not None and row.time_us < self._since_us:
                self.excluded += 1
            else:
                bucket.wait(row)
        self._fold_bucket(bucket, watermark_us(max(row.commit_us for row in rows), self._delay_us))

    def _fold_bucket(self, bucket: "_Bucket", watermark: int) -> None:
        emitted = bucket.fold_complete(until_us(watermark))
        self.emitted.rows.extend(emitted.rows)
        self.emitted.emitted_at_us.extend(emitted.emitted_at_us)
        self.emitted.removed.extend(emitted.removed)
        self.dead_letters.extend(emitted.dead_letters)
        self.duplicates += emitted.duplicates

    def _late(self, row: BronzeRow) -> bool:
        if row.arrival_us is None or self._fold.in_processing_time:
            return False
        return bool(is_late(row.time_us, row.arrival_us, self._delay_us))

    def _bucket_of(self, row: BronzeRow) -> int:
        key = None if row.event is None else self._key_of(row.event)
        return hash(key) % len(self._buckets)

    def states(self) -> dict[Key, KeyState]:
        """Return the state of each key."""
        return {known.key: known for bucket in self._buckets for known in bucket.states}

    def waiting(self) -> list[BronzeRow]:
        """The rows of events that are not complete yet."""
        return [row for bucket in self._buckets for row in bucket.pending]

    def pending(self) -> int:
        """Return the number of events that wait to be complete."""
        return len(self.waiting())


class _Bucket:
    def __init__(self, fold: KeyedFold) -> None:
        self._fold = fold
        self._folded_until_us: int | None = None
        self.states = States(fold)
        self.pending: list[BronzeRow] = []

    def wait(self, row: BronzeRow) -> None:
        if self._folded_until_us is not None and row.time_us < self._folded_until_us:
            raise BrokenInvariantError(f"{row} is before {self._folded_until_us} us")
        self.pending.append(row)

    def fold_complete(self, until: int) -> Emitted:
        complete = sorted((row for row in self.pending if row.time_us < until), key=self._order)
        self.pending = [row for row in self.pending if row.time_us >= until]
        folded_until = self._folded_until_us
        self._folded_until_us = until if folded_until is None else max(folded_until, until)
        return fold_runs(
            self._fold,
            self.states,
            self._runs(complete),
            events=[row.event for row in complete],
            times_us=[row.time_us for row in complete],
            until_us=until,
        )

    def _runs(self, complete: list[BronzeRow]) -> Iterable[KeyRun]:
        start = 0
        for end in range(1, len(complete) + 1):
            key = self._fold.keys.of(complete[start].event)
            if end == len(complete) or self._fold.keys.of(complete[end].event) != key:
                yield KeyRun(key, start, end)
                start = end

    def _order(self, row: BronzeRow) -> tuple[Any, ...]:
        return (rank(self._fold.keys.of(row.event)), row.time_us, rank(tuple(row.event)))
