"""The promise itself, which must hold after each action, whatever came before.

Where the record says right, the table equals an oracle that knows nothing of our code; where it
says wrong, a finding names it; and what nobody can count on is an error that says so.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from include.fold.admission import instant_of, micros_of
from include.ingest.ingest_log import how_bronze_changed
from include.lake.delta_log import dataset_of
from include.settings import Stream
from include.stream.status_report import status_record
from include.stream.stream_status import stream_status
from tests.simulator import oracle
from tests.simulator.oracle import Emitted, Folded, Marks
from tests.simulator.shapes import FLAT, Landed, Shape
from tests.simulator.world import World

STAMPS = ("watermark_before", "watermark_after", "ingested_at")
BEGINNING = instant_of(0)
# Whose states variant d maps.
MAPPED = ("a", "b", "c", "e")


class WrongError(AssertionError):
    """The table is wrong, and nobody says so."""


@dataclass(frozen=True)
class Truth:
    """The table by some code: all rows folded by it, or those since a migration of its states."""

    kind: str
    variant: str
    before: "Truth | None" = None  # what was mapped, as of `since_us`
    since_us: int | None = None
    shape: Shape = FLAT

    def folded(self, rows: list[Landed], until_us: int) -> Folded:
        """The fold of all rows before an instant, with all its outputs."""
        if self.before is None or self.since_us is None:
            return oracle.folded(self.kind, self.variant, rows, until_us, shape=self.shape)
        if until_us < self.since_us:
            return self.before.folded(rows, until_us)
        before = self.before.folded(rows, self.since_us)
        later = [row for row in rows if row.time_us >= (self.since_us or 0)]
        mapped = oracle.mapped(before)
        after = oracle.folded(self.kind, self.variant, later, until_us, mapped, self.shape)
        dead_letters = before.dead_letters + after.dead_letters
        return Folded(after.keys, before.outputs + after.outputs, dead_letters)


class Verdict(NamedTuple):
    """The status of a table, by the code of now."""

    until: datetime | None
    wrong: list[dict[str, Any]]
    live_is_right: bool


@dataclass
class Auditor:
    """Looks at one stream of a world after each action: at what `./stateful status` says of its
    table, and at the table."""

    world: World
    kind: str
    # What was mapped, it may be: as of an instant, in a generation, as two mappings may be of one instant.
    mapped: dict[tuple[datetime, int], list[Truth]] = field(default_factory=dict)
    marks: list[Marks] = field(default_factory=list)  # of bronze's commits so far

    @property
    def stream(self) -> Stream:
        return self.world.streams[self.kind]

    def status(self) -> dict[str, Any]:
        """By `./stateful status NAME --json`."""
        return status_record(stream_status(self.world.lake, self.stream))

    def check(self) -> Verdict | None:
        """Raise WrongError where the table differs from what is said of it; None: nothing is, loud."""
        status = self.status()
        if status["mismatch"] is not None:
            self._check_loud(status)
            return None
        until = status["complete_until"]
        self._check_truths(status, until)
        self._check_named(status)
        return Verdict(until, status["wrong"], status["live_is_right"])

    def _check_loud(self, status: dict[str, Any]) -> None:
        is_said = any(each["severity"] == "error" for each in status["findings"])
        if status["generation"] is not None and not is_said:
            raise WrongError(f"{status['mismatch']}, and no finding says so")

    def _check_truths(self, status: dict[str, Any], until: datetime | None) -> None:
        """One of them is what the table is right by: of mapped states nobody says whose they were."""
        truths, wrong = self._truths(status["states_mapped_as_of"], status["generation"]), []
        for truth in list(truths):
            try:
                self._compare(status, until, truth)
                self._compare_dead_letters(status, until, truth)
            except WrongError as error:
                truths.remove(truth)
                wrong.append(error)
        if not truths:
            raise wrong[0]

    def _truths(self, mapped_as_of: datetime | None, generation: int) -> list[Truth]:
        variant = self.world.deployed[self.kind]
        if mapped_as_of is None:
            return [self._truth(variant)]
        mapping = mapped_as_of, generation
        if mapping not in self.mapped:
            since_us = micros_of(mapped_as_of)
            truths = [self._truth(variant, self._truth(each), since_us) for each in MAPPED]
            self.mapped[mapping] = truths
        return self.mapped[mapping]

    def check_clock(self) -> None:
        """Raise WrongError where bronze is stamped otherwise than its keys' times tell."""
        source = self.world.source
        if source.watermark_per is None or how_bronze_changed(self.world.lake, source.name):
            return  # of the latter everybody says so
        idle_us = source.idle_after // timedelta(microseconds=1)
        self.marks = oracle.grouped_marks(self.world.commits, idle_us, self.marks)
        rows = dataset_of(self.world.lake.bronze(source.name)).to_table(columns=list(STAMPS))
        stamped = {tuple(map(_micros, row.values())) for row in rows.to_pylist()}
        # A row that stands still has the instant of the commit before.
        still = {mark._replace(arrival_us=mark.commit_us) for mark in self.marks}
        if not set(self.marks) <= stamped <= still | set(self.marks):
            raise WrongError(f"bronze has {stamped - still}, and not {set(self.marks) - stamped}")

    def _truth(
        self, variant: str, before: Truth | None = None, since_us: int | None = None
    ) -> Truth:
        return Truth(self.kind, variant, before, since_us, self.world.shape)

    def _compare(self, status: dict[str, Any], until: datetime | None, truth: Truth) -> None:
        if until is None:
            return
        rows = [row for commit in self.world.commits for row in commit.rows]
        table = self.world.table(self.kind)
        folded = truth.folded(rows, micros_of(until))
        if self.kind == "counts_per_key":
            rows_of_keys = oracle.rows_of_keys(truth.variant, folded, truth.shape)
            expected = Counter(rows_of_keys.values())
        else:
            expected = Counter(folded.outputs)
        for from_us, until_us in right_spans(status["wrong"], until):
            self._equal(table, expected, from_us, until_us)

    def _compare_dead_letters(
        self, status: dict[str, Any], until: datetime | None, truth: Truth
    ) -> None:
        if until is None or status["dead_letters_wrong"] is None:
            return
        rows = [row for commit in self.world.commits for row in commit.rows]
        for from_us, until_us in right_spans(status["dead_letters_wrong"], until):
            folded = truth.folded(rows, until_us)
            expected = Counter(call for call in folded.dead_letters if from_us <= call[1])
            found = Counter(
                {
                    call: n
                    for call, n in self.world.dead_letters(self.kind).items()
                    if from_us <= call[1] < until_us
                }
            )
            if found != expected:
                raise WrongError(f"dead letters from {from_us} on: {found}, and not {expected}")

    def _equal(
        self, table: Counter[Emitted], expected: Counter[Emitted], from_us: int, until_us: int
    ) -> None:
        def within(rows: Counter[Emitted]) -> Counter[Emitted]:
            return Counter({r: n for r, n in rows.items() if from_us <= r.at_us < until_us})

        missing, surplus = within(expected) - within(table), within(table) - within(expected)
        if missing or surplus:
            raise WrongError(
                f"right from {from_us} until {until_us}, says the record of {self.kind}; but "
                f"{sum(missing.values())} rows are missing ({list(missing)[:3]}) and "
                f"{sum(surplus.values())} too many ({list(surplus)[:3]})"
            )

    def _check_named(self, status: dict[str, Any]) -> None:
        """Each instant that is not right is in a finding's span."""
        if status["generation"] is None:
            return
        findings = status["findings"]
        for span in status["wrong"]:
            if not any(_holds(finding, span) for finding in findings):
                raise WrongError(f"wrong {span}, and no finding names it: {findings}")
        if not status["live_is_right"] and not findings:
            raise WrongError("the live state is not right, and no finding says so")


def right_spans(wrong: Iterable[dict[str, Any]], until: datetime) -> list[tuple[int, int]]:
    """The instants of a table that are not said to be wrong."""
    spans, at_us = [], micros_of(BEGINNING)
    for span in wrong:
        spans.append((at_us, micros_of(span["from"] or BEGINNING)))
        at_us = micros_of(span["until"] or BEGINNING)
    return [each for each in (*spans, (at_us, micros_of(until))) if each[0] < each[1]]


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else micros_of(instant)


def _holds(finding: dict[str, Any], span: dict[str, Any]) -> bool:
    first, last = finding["event_time_from"], finding["event_time_to"]
    begins = first is None or (span["from"] is not None and first <= span["from"])
    return begins and last is not None and span["until"] <= last
