"""What must hold after each action, whatever came before: the promise itself.

Where the ledger says right, the table equals an oracle that knows nothing of our code; where it
says wrong, a finding names it; and what nobody can count on is an error that says so.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from deltalake import DeltaTable

from include.coverage.judge import Coverage
from include.coverage.segments import BEGINNING_US
from include.coverage.table_coverage import (
    find_coverage,
    findings_on,
    rejected_coverage,
    table_coverage,
)
from include.fold.deduplicate import SEEN, Deduplicate
from include.fold.instants import micros_of
from include.lake.findings import Finding
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.lake.read_tables import dataset_of
from include.landing.bronze_commits import read_clock
from include.landing.group_clock import no_groups
from include.landing.group_rows import groups_of_rows
from include.plans.open_stream import open_stream
from include.plans.stream_identity import stream_identity
from include.savepoints.lineage import code_of, is_mapped, rejects
from include.savepoints.manifest import savepoints_of
from include.settings import Source, Stream
from tests.simulator import oracle
from tests.simulator.arrow_savepoints import read_rows
from tests.simulator.oracle import Emitted, Folded, Marks
from tests.simulator.shapes import FLAT, Landed, Shape
from tests.simulator.world import World

STAMPS = ("arrival_watermark", "commit_watermark", "ingested_at")


class WrongError(AssertionError):
    """The table is wrong, and nobody says so."""


@dataclass(frozen=True)
class Truth:
    """What a table must be by some code: all rows folded by it, or from a mapping on."""

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
        rejected = before.rejected + after.rejected
        return Folded(after.keys, before.outputs + after.outputs, rejected)


@dataclass
class Auditor:
    """Looks at one stream of a world after each action."""

    world: World
    kind: str
    codes: dict[str, str] = field(default_factory=dict)  # fingerprint -> variant
    mapped: dict[str, Truth] = field(default_factory=dict)  # of states that were mapped
    marks: list[Marks] = field(default_factory=list)  # of bronze's commits so far
    looked_at: set[str] = field(default_factory=set)  # savepoints

    @property
    def stream(self) -> Stream:
        return self.world.streams[self.kind]

    def note_code(self) -> None:
        """Remember which variant today's fingerprint is of."""
        identity = stream_identity(self.world.lake, self.stream)
        self.codes[code_of(identity.code)] = self.world.deployed[self.kind]

    def check(self) -> Coverage | None:
        """Raise WrongError where the table differs from what the ledger says of it."""
        lake, stream = self.world.lake, self.stream
        identity = stream_identity(lake, stream)
        judged = table_coverage(lake, stream, identity)
        if judged.distrust is not None:
            found = [f for f in find_coverage(lake, stream) if f.severity == "error"]
            if read_generations(lake, stream.name).current is not None and not found:
                raise WrongError(f"{judged.distrust}, and no finding says so")
            return None
        truth = self.truth_of(identity.code)
        self._compare(judged.coverage, truth)
        opened = open_stream(lake, stream)
        if rejects(identity.code) and opened.generations.intent is None:
            rejected = rejected_coverage(lake, opened.row, opened.seen, identity)
            self._compare_rejected(rejected, truth)
        self._check_named()
        self._check_seen()
        return judged.coverage

    def _check_seen(self) -> None:
        """Raise WrongError where a savepoint keeps values that no event can repeat any more."""
        lake, deduplicate = self.world.lake, self.stream.deduplicate
        if not isinstance(deduplicate, Deduplicate):
            return
        for savepoint in savepoints_of(lake, self.stream.name):
            path = f"{lake.root}/{savepoint.path}"
            if savepoint.savepoint_id in self.looked_at or not lake.is_delta_table(path):
                continue
            self.looked_at.add(savepoint.savepoint_id)
            rows = read_rows(lake, savepoint.path, savepoint.savepoint_id)
            seen = [each for of in rows[SEEN].to_pylist() for each in of or ()]
            over = savepoint.until_us - deduplicate.within_us
            if any(each["at_us"] < over for each in seen):
                raise WrongError(f"savepoint of {savepoint.until_us} has seen too much: {seen}")

    def check_clock(self) -> None:
        """Raise WrongError where bronze is stamped otherwise than its keys' times tell."""
        source = self.world.source
        if source.watermark_per is None:
            return
        idle_us = source.idle_after // timedelta(microseconds=1)
        self.marks = oracle.grouped_marks(self.world.commits, idle_us, self.marks)
        rows = dataset_of(self.world.lake.bronze(source.name)).to_table(columns=list(STAMPS))
        stamped = {tuple(map(_micros, row.values())) for row in rows.to_pylist()}
        # A row that stands still has the instant of the commit before.
        still = {mark._replace(arrival_us=mark.commit_us) for mark in self.marks}
        if not set(self.marks) <= stamped <= still | set(self.marks):
            raise WrongError(f"bronze has {stamped - still}, and not {set(self.marks) - stamped}")
        self._check_groups(source)

    def _check_groups(self, source: Source) -> None:
        """The log and the rows say the same of them."""
        clock, empty = read_clock(self.world.lake, source), no_groups(source)
        assert empty is not None
        if clock.watermark_us is None or clock.groups is None:
            return
        bronze = DeltaTable(self.world.lake.bronze(source.name))
        of_rows = groups_of_rows(bronze, source, clock, empty)
        beyond = [
            {n: g._replace(newest_us=max(g.newest_us, clock.watermark_us)) for n, g in of.items()}
            for of in (of_rows.of, clock.groups.of)
        ]
        if beyond[0] != beyond[1]:
            raise WrongError(f"groups by bronze's rows and by its log: {beyond}")

    def truth_of(self, code: str) -> Truth:
        """The truth by today's code, and what its states go back to."""
        variant = self.world.deployed[self.kind]
        if not is_mapped(code):
            return self._truth(variant)
        # Noted when it is first seen: what it goes back to may be lost later.
        if code not in self.mapped:
            rows = read_generations(self.world.lake, self.stream.name).rows
            row = next(row for row in rows if row["code"] == code and row["reseed"] == "migrate")
            before = self._truth(self.codes[self._code_of(row["base_savepoint"])])
            self.mapped[code] = self._truth(variant, before, micros_of(row["base_until"]))
        return self.mapped[code]

    def _truth(
        self, variant: str, before: Truth | None = None, since_us: int | None = None
    ) -> Truth:
        return Truth(self.kind, variant, before, since_us, self.world.shape)

    def _code_of(self, savepoint_id: str) -> str:
        rows = read_ops(self.world.lake, "savepoints", {"savepoint_id": savepoint_id})
        return str(rows["code"][0])

    def _compare(self, coverage: Coverage, truth: Truth) -> None:
        if coverage.until_us is None:
            return
        rows = [row for commit in self.world.commits for row in commit.rows]
        table = self.world.table(self.kind)
        folded = truth.folded(rows, coverage.until_us)
        if self.kind == "counts_per_key":
            if not coverage.wrong:
                rows_of_keys = oracle.rows_of_keys(truth.variant, folded, truth.shape)
                expected = Counter(rows_of_keys.values())
                self._equal(table, expected, BEGINNING_US, coverage.until_us)
            return
        expected = Counter(folded.outputs)
        for span in coverage.spans:
            if span.reason is None:
                self._equal(table, expected, span.from_us, span.until_us)

    def _compare_rejected(self, coverage: Coverage, truth: Truth) -> None:
        """While a reseed is open, what finishes it brings them."""
        rows = [row for commit in self.world.commits for row in commit.rows]
        for span in coverage.spans:
            if span.reason is not None:
                continue
            folded = truth.folded(rows, span.until_us)
            expected = Counter(call for call in folded.rejected if span.from_us <= call[1])
            found = Counter(
                {
                    call: n
                    for call, n in self.world.rejected(self.kind).items()
                    if span.from_us <= call[1] < span.until_us
                }
            )
            if found != expected:
                raise WrongError(f"rejected in {span}: {found}, and not {expected}")

    def _equal(
        self, table: Counter[Emitted], expected: Counter[Emitted], from_us: int, until_us: int
    ) -> None:
        def within(rows: Counter[Emitted]) -> Counter[Emitted]:
            return Counter({r: n for r, n in rows.items() if from_us <= r.at_us < until_us})

        missing, surplus = within(expected) - within(table), within(table) - within(expected)
        if missing or surplus:
            raise WrongError(
                f"right from {from_us} until {until_us}, says the ledger of {self.kind}; but "
                f"{sum(missing.values())} rows are missing ({list(missing)[:3]}) and "
                f"{sum(surplus.values())} too many ({list(surplus)[:3]})"
            )

    def _check_named(self) -> None:
        """Each instant that is not right, by the code that ran last, is in a finding's span."""
        lake, stream = self.world.lake, self.stream
        row = read_generations(lake, stream.name).current
        if row is None:
            return
        judged = table_coverage(lake, stream)
        findings = findings_on(lake, stream, judged, row)
        for span in judged.coverage.wrong:
            if not any(_holds(finding, span.from_us, span.until_us) for finding in findings):
                raise WrongError(f"wrong {span}, and no finding names it: {findings}")
        if not judged.coverage.live_is_right and not findings:
            raise WrongError("the live state is not right, and no finding says so")


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else micros_of(instant)


def _holds(finding: Finding, from_us: int, until_us: int) -> bool:
    first, last = finding.event_time_from, finding.event_time_to
    begins = first is None or micros_of(first) <= from_us
    return begins and last is not None and until_us <= micros_of(last)
