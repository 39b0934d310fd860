"""What `ops` has of all streams, read once: of each table the columns that are shown; and of what was
found, what is open."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.coverage.judge import LateGroup, late_groups
from include.lake.delta_log import open_table
from include.lake.findings import SEVERITIES, Finding, record_findings
from include.lake.ops import not_ahead, read_ops
from include.lake.paths import Lake
from include.plans.stream_status import StreamStatus, stream_status
from include.savepoints.bronze_pin import BronzeFiles
from include.settings import Stream

Row = Mapping[str, Any]
RUN, INGEST, RESEED = "run_stream", "ingest_source", "reseed_stream"
SUMMED = ("rows_in", "rows_late", "rows_landed", "rows_quarantined", "rows_rescued")
RUN_COLUMNS = (
    *("run_id", "job", "subject", "started_at", "ended_at", "outcome", "error"),
    *("rows_pending", "rows_out", "until", *SUMMED),
)
FINDING_COLUMNS = (
    *("run_id", "found_at", "subject", "finding", "severity", "count", "detail", "action"),
)
SIZE_COLUMNS = ("stream", "measured_at", "part", "bytes")
# Lost for good: open until a person has said, by `./stateful ingest SOURCE --accept-loss`, that it may be.
LOST, ACCEPTED = ("rows_skipped", "versions_ignored"), "loss_accepted"
# Said by each batch, or each command, of what it did itself. All else is said anew as a whole.
EACH_ITS_OWN = {"rows_dead_lettered", "rows_quarantined", *LOST}
# A check comes after each run. Some of these may have failed.
UNCHECKED = timedelta(days=2)


@dataclass(frozen=True)
class RunsOf:
    """The runs of a job and a subject."""

    newest: Row
    succeeded: Row  # the newest of these; {} without any
    count: int  # in the window
    began: datetime | None  # the first in the window
    sums: Mapping[str, int]  # of SUMMED, in the window


@dataclass(frozen=True)
class Recorded:
    """The rows that a page of all streams is made of; each table is read when it is asked for."""

    lake: Lake
    since: datetime  # of what is counted over a time: the window's beginning
    only: Stream | None = None  # of it and of its source is asked; None: of all
    _data_us: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)

    def in_window(
        self,
        name: str,
        by: str,
        where: Mapping[str, Any],
        columns: Sequence[str] | None = None,
        since: datetime | None = None,
    ) -> list[Row]:
        """Rows of `ops/<name>` whose instant `by` lies in the window, in its order.

        `since`: in place of the window's beginning.
        """
        asked = None if columns is None else [*{*columns, by}]
        rows = read_ops(self.lake, name, where, asked, since=(by, since or self.since)).to_pylist()
        return sorted(rows, key=itemgetter(by))

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], RunsOf]:
        """Of each job and subject, its runs."""
        rows = self._read_runs()
        done = rows.filter(pc.equal(rows["outcome"], "succeeded"))
        window = rows.filter(pc.greater_equal(rows["ended_at"], pa.scalar(self.since)))
        succeeded = _by_group(done, [("at", "max")])
        counted = [("started_at", "min"), ([], "count_all"), *((name, "sum") for name in SUMMED)]
        counts = _by_group(window, counted)
        return {
            of: RunsOf(
                newest=_row(rows, group),
                succeeded=_row(rows, succeeded[of]) if of in succeeded else {},
                count=counts.get(of, {}).get("count_all", 0),
                began=counts.get(of, {}).get("started_at_min"),
                sums={name: counts.get(of, {}).get(f"{name}_sum") or 0 for name in SUMMED},
            )
            for of, group in _by_group(rows, [("at", "max")]).items()
        }

    def _read_runs(self) -> pa.Table:
        """In order, with their number `at`."""
        rows = read_ops(self.lake, "runs", None, RUN_COLUMNS, before=("ended_at", not_ahead()))
        rows = rows.filter(pc.is_in(rows["job"], pa.array([RUN, INGEST, RESEED])))
        if self.only is not None:
            names = pa.array([self.only.name, self.only.source])
            rows = rows.filter(pc.is_in(rows["subject"], names))
        return rows.sort_by("ended_at").append_column("at", pa.array(range(rows.num_rows)))

    @cached_property
    def findings(self) -> Mapping[str, Sequence[Row]]:
        """Of each subject, those found since its newest run began, or in the window; all that is lost."""
        began = (runs.newest["started_at"] for runs in self.runs.values())
        wanted = pc.field("found_at") >= pa.scalar(min([self.since, *began]))
        wanted |= pc.field("finding").isin([*LOST, ACCEPTED])
        rows = read_ops(self.lake, "findings", columns=FINDING_COLUMNS, wanted=wanted)
        found: dict[str, list[Row]] = defaultdict(list)
        for row in rows.to_pylist():
            found[row["subject"]].append(row)
        return found

    @cached_property
    def sizes(self) -> Mapping[tuple[str, str], int]:
        """Bytes of each stream's checkpoint when it was last measured: of its `state`, and `all`."""
        ran = [runs.newest["started_at"] for (job, _), runs in self.runs.items() if job == RUN]
        since = ("measured_at", min(ran, default=self.since) - UNCHECKED)
        where = {} if self.only is None else {"stream": self.only.name}
        rows = read_ops(self.lake, "checkpoint_sizes", where, SIZE_COLUMNS, since)
        of_state = rows.filter(pc.equal(rows["part"], "state"))
        sizes = {}
        for part, measured in (("all", rows), ("state", of_state)):
            sums = measured.group_by(["stream", "measured_at"]).aggregate([("bytes", "sum")])
            for row in sums.sort_by("measured_at").to_pylist():  # the newest last
                sizes[row["stream"], part] = row["bytes_sum"]
        return sizes

    def status(self, stream: Stream) -> StreamStatus:
        """The verdict on the table of `stream`, as of now."""
        return stream_status(self.lake, stream, self._read_late)

    def data_us(self, source: str) -> tuple[int | None, int | None]:
        """Between these two the rows of a source's bronze lie; None where there are none."""
        if source not in self._data_us:
            path, ends = self.lake.bronze(source), (None, None)
            if self.lake.is_delta_table(path):
                first, last = BronzeFiles(open_table(path)).span("event_time")
                ends = (pc.min(first).as_py(), pc.max(last).as_py())
            self._data_us[source] = ends
        return self._data_us[source]

    @cached_property
    def _read_late(self) -> Callable[..., list[LateGroup]]:
        # Many streams of a source have one delay, and no pin.
        return lru_cache(None)(late_groups)


def _by_group(rows: pa.Table, figures: Sequence[tuple[Any, str]]) -> dict[tuple[str, str], Row]:
    groups = rows.group_by(["job", "subject"]).aggregate(figures)
    return {(row["job"], row["subject"]): row for row in groups.to_pylist()}


def _row(rows: pa.Table, group: Row) -> Row:
    """The row that a group names by `at_max`."""
    return rows.slice(group["at_max"], 1).to_pylist()[0]  # type: ignore[no-any-return]


def open_findings(recorded: Recorded, stream: Stream) -> list[Row]:
    """What was found of a stream and of its source since their newest run began, the worst first.

    Each run is followed by a check, so what an earlier one found, and this one did not, is over.
    """
    of_stream = _found_since(recorded, RUN, stream.name)
    of_source = _found_since(recorded, INGEST, stream.source)
    # A stream may be called as its source is.
    found = {id(row): row for row in [*of_source, *of_stream]}.values()
    return sorted(found, key=lambda row: (SEVERITIES.index(row["severity"]), row["finding"]))


def _found_since(recorded: Recorded, job: str, subject: str) -> list[Row]:
    runs = recorded.runs.get((job, subject))
    began = recorded.since if runs is None else runs.newest["started_at"]
    found = [row for row in recorded.findings.get(subject, ()) if row["found_at"] >= began]
    found = [*open_losses(recorded, subject), *(r for r in found if r["finding"] not in LOST)]
    if mended := mended_run(recorded, subject):
        found = [row for row in found if row["run_id"] != mended["run_id"]]
    return newest_of_each(found, ("finding",))


def open_losses(recorded: Recorded, subject: str) -> list[Row]:
    """What is lost for good, and nobody has accepted yet, whenever it was found."""
    rows = recorded.findings.get(subject, ())
    accepted = [row["found_at"] for row in rows if row["finding"] == ACCEPTED]
    since = max(accepted, default=datetime.min.replace(tzinfo=UTC))
    return [row for row in rows if row["finding"] in LOST and row["found_at"] > since]


def record_accepted(lake: Lake, source: str) -> None:
    """That somebody has seen what was lost until now: the findings on it are over."""
    found = Finding(finding=ACCEPTED, severity="info", detail="what was lost is accepted")
    record_findings(lake, None, source, [found])


def mended_run(recorded: Recorded, subject: str) -> Row | None:
    """The newest run of a stream, if it has failed and a reseed has made all anew since."""
    runs, reseeds = (recorded.runs.get((job, subject)) for job in (RUN, RESEED))
    if runs is None or reseeds is None or runs.newest["outcome"] != "failed":
        return None
    done = reseeds.succeeded
    return runs.newest if done and done["ended_at"] > runs.newest["ended_at"] else None


def newest_of_each(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    """Without what was said anew later, of the same `columns`."""
    newest: dict[tuple[Any, ...], datetime] = {}
    for row in sorted(rows, key=itemgetter("found_at")):
        newest[tuple(row[column] for column in columns)] = row["found_at"]
    return [
        row
        for row in rows
        if row["finding"] in EACH_ITS_OWN
        or row["found_at"] == newest[tuple(row[column] for column in columns)]
    ]
