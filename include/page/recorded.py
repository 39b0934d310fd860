"""What `ops` has of all streams, read once for a page: of each table the columns that it shows."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.coverage.findings import coverage_findings
from include.coverage.judge import Coverage, LateGroup, judge, late_groups
from include.coverage.record import StreamRecord, read_record
from include.coverage.table_coverage import standpoint_of
from include.lake.delta_log import open_table
from include.lake.findings import Finding
from include.lake.generations import read_generations
from include.lake.ops import not_ahead, read_ops
from include.lake.paths import Lake, LakeError
from include.landing.clock_repair import knows_reset, newest_repair
from include.landing.ingest_log import ClockRepair
from include.savepoints.manifest import has_mapped
from include.settings import Stream

Row = Mapping[str, Any]
RUN_COLUMNS = (
    "job",
    "subject",
    "started_at",
    "ended_at",
    "outcome",
    "error",
    "rows_in",
    "rows_late",
    "rows_pending",
    "rows_quarantined",
    "until",
)
FINDING_COLUMNS = (
    "run_id",
    "found_at",
    "subject",
    "finding",
    "severity",
    "count",
    "detail",
    "action",
)
RUN, INGEST = "run_stream", "ingest_source"
SUMMED = ("rows_in", "rows_late", "rows_quarantined")
SPARK_RUNS = 30
# A check comes after each run. Some of these may have failed.
UNCHECKED = timedelta(days=2)
SIZE_COLUMNS = ("stream", "measured_at", "part", "bytes")


@dataclass(frozen=True)
class RunsOf:
    """The runs of a job and a subject."""

    newest: Row
    succeeded: Row  # the newest of these; {} without any
    rows_in: tuple[int, ...]  # of the newest SPARK_RUNS, the newest last
    count: int  # in the window
    sums: Mapping[str, int]  # of SUMMED, in the window


@dataclass(frozen=True)
class Recorded:
    """The rows that a page of all streams is made of; each table is read when it is asked for."""

    lake: Lake
    since: datetime  # of what is counted over a time: the window's beginning
    only: Stream | None = None  # of it and of its source is asked; None: of all
    until: datetime | None = None  # the window's end; None: all since

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
        begin = (by, since or self.since)
        end = None if self.until is None else (by, self.until)
        asked = None if columns is None else [*{*columns, by}]
        rows = read_ops(self.lake, name, where, columns=asked, since=begin, before=end).to_pylist()
        return sorted(rows, key=itemgetter(by))

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], RunsOf]:
        """Of each job and subject, its runs."""
        rows = self._read_runs()
        rows = rows.sort_by("ended_at").append_column("at", pa.array(range(rows.num_rows)))
        newest = _by_group(rows, [("at", "max"), ("rows_in", "list")])
        done = _by_group(rows.filter(pc.equal(rows["outcome"], "succeeded")), [("at", "max")])
        window = self._of_window(rows)
        sums = _by_group(window, [([], "count_all"), *((name, "sum") for name in SUMMED)])
        last, good = (_rows_at(rows, groups) for groups in (newest, done))
        return {
            key: RunsOf(
                newest=last[key],
                succeeded=good.get(key, {}),
                rows_in=tuple(n or 0 for n in group["rows_in_list"][-SPARK_RUNS:]),
                count=sums.get(key, {}).get("count_all", 0),
                sums={name: sums.get(key, {}).get(f"{name}_sum") or 0 for name in SUMMED},
            )
            for key, group in newest.items()
        }

    def _of_window(self, runs: pa.Table) -> pa.Table:
        ended = pc.field("ended_at") >= pa.scalar(self.since)
        if self.until is not None:
            ended &= pc.field("ended_at") < pa.scalar(self.until)
        return runs.filter(ended)

    def _read_runs(self) -> pa.Table:
        if self.only is None:
            rows = read_ops(self.lake, "runs", None, RUN_COLUMNS, before=("ended_at", not_ahead()))
            return rows.filter(pc.is_in(rows["job"], pa.array([RUN, INGEST])))
        of = ((RUN, self.only.name), (INGEST, self.only.source))
        return pa.concat_tables(
            read_ops(
                self.lake,
                "runs",
                {"job": job, "subject": subject},
                RUN_COLUMNS,
                before=("ended_at", not_ahead()),
            )
            for job, subject in of
        )

    @property
    def _of_stream(self) -> dict[str, str]:
        return {} if self.only is None else {"stream": self.only.name}

    @cached_property
    def findings(self) -> Mapping[str, Sequence[Row]]:
        """Of each subject, those found since its newest run began, or in the window."""
        began = (runs.newest["started_at"] for runs in self.runs.values())
        since = ("found_at", min([self.since, *began]))
        rows = read_ops(self.lake, "findings", columns=FINDING_COLUMNS, since=since)
        return _grouped(rows.to_pylist(), "subject")

    @cached_property
    def sizes(self) -> Mapping[tuple[str, str], int]:
        """Bytes of each stream's checkpoint when it was last measured: of its `state`, and `all`."""
        ran = [runs.newest["started_at"] for (job, _), runs in self.runs.items() if job == RUN]
        since = min(ran, default=self.since) - UNCHECKED
        rows = read_ops(
            self.lake, "checkpoint_sizes", self._of_stream, SIZE_COLUMNS, ("measured_at", since)
        )
        newest = rows.group_by("stream").aggregate([("measured_at", "max")])
        newest = newest.rename_columns(["stream", "measured_at"])
        # Few of the rows, so that what is joined is not all of them.
        recent = rows.filter(pc.is_in(rows["measured_at"], newest["measured_at"].combine_chunks()))
        sizes: dict[tuple[str, str], int] = defaultdict(int)
        for row in recent.join(newest, ["stream", "measured_at"], join_type="inner").to_pylist():
            for part in {"all", "state"} & {"all", row["part"]}:
                sizes[row["stream"], part] += row["bytes"]
        return sizes

    def coverage(self, stream: Stream) -> tuple[Coverage, list[Finding]]:
        """The table of `stream`, judged by its newest record and by bronze as it is now; what is wrong.

        Whether that record holds, the check of each run asks; of a table without one nothing is right.
        """
        row = read_generations(self.lake, stream.name).current
        bronze_id, repair = self._bronze(stream.source)
        knows = repair is None or knows_reset(row, repair)
        reset_us = None if knows or repair is None else repair.reset_at_us
        standpoint = standpoint_of(stream, row, bronze_id, reset_us=reset_us)
        try:
            record = read_record(self.lake, stream.name)
        except LakeError:
            record = StreamRecord(stream=stream.name)
        coverage = judge(self.lake, record.entries, standpoint, read_late=self._read_late)
        return coverage, coverage_findings(stream, coverage, standpoint.is_append, has_mapped(row))

    @cached_property
    def _bronze(self) -> Callable[[str], tuple[str | None, ClockRepair | None]]:
        @lru_cache(None)
        def read(source: str) -> tuple[str | None, ClockRepair | None]:
            path = self.lake.bronze(source)
            if not self.lake.is_delta_table(path):
                return None, None
            return str(open_table(path).metadata().id), newest_repair(self.lake, source)

        return read

    @cached_property
    def _read_late(self) -> Callable[..., list[LateGroup]]:
        # Many streams of a source have one delay, and no pin.
        return lru_cache(None)(late_groups)


def _grouped(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[column]].append(row)
    return found


def _by_group(rows: pa.Table, figures: Sequence[tuple[Any, str]]) -> dict[tuple[str, str], Row]:
    # Without threads: lists are to be in the order of the rows.
    groups = rows.group_by(["job", "subject"], use_threads=False).aggregate(figures)
    return {(row["job"], row["subject"]): row for row in groups.to_pylist()}


def _rows_at(rows: pa.Table, groups: Mapping[tuple[str, str], Row]) -> dict[tuple[str, str], Row]:
    """The rows that each group names by `at_max`."""
    wanted = rows.take(pa.array([row["at_max"] for row in groups.values()], pa.int64()))
    return dict(zip(groups, wanted.to_pylist(), strict=True))
