"""What `ops` has of all streams, read once for a page: of each table the columns that it shows."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.coverage.entries import Entry, entry_of
from include.coverage.judge import Coverage, Standpoint, judge
from include.coverage.late_groups import LateGroup, late_groups
from include.coverage.table_coverage import IN_PROCESSING_TIME
from include.fold.instants import micros_of
from include.lake.generations import GenerationRow, Generations
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.clock_repair import ClockRepair, knows_reset, newest_repair
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
    "rows_out",
    "rows_quarantined",
    "until",
)
FINDING_COLUMNS = (
    "found_at",
    "subject",
    "finding",
    "severity",
    "count",
    "detail",
    "action",
    "figure",
    "limit",
    "unit",
    "event_time_from",
    "event_time_to",
)
SIZE_COLUMNS = ("stream", "measured_at", "part", "bytes")


@dataclass(frozen=True)
class Recorded:
    """The rows that a page of all streams is made of; each table is read when it is asked for."""

    lake: Lake
    since: datetime  # of what is counted over a time: the window's beginning

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], pa.Table]:
        """Of each job and subject, its runs, the newest last."""
        rows = read_ops(self.lake, "runs", columns=RUN_COLUMNS)
        rows = rows.sort_by(
            [("job", "ascending"), ("subject", "ascending"), ("ended_at", "ascending")]
        )
        return _parts(rows, ("job", "subject"))

    @cached_property
    def findings(self) -> Mapping[str, Sequence[Row]]:
        """Of each subject, those found in the window."""
        return _grouped(self._since("findings", FINDING_COLUMNS, "found_at"), "subject")

    @cached_property
    def savepoints(self) -> Mapping[str, Sequence[Row]]:
        columns = ("stream", "until", "created_at", "keys", "deleted_at")
        return _grouped(read_ops(self.lake, "savepoints", columns=columns).to_pylist(), "stream")

    @cached_property
    def sizes(self) -> Mapping[tuple[str, str], int]:
        """Bytes of each stream's checkpoint when it was last measured: of its `state`, and `all`."""
        rows = read_ops(self.lake, "checkpoint_sizes", columns=SIZE_COLUMNS)
        newest = rows.group_by("stream").aggregate([("measured_at", "max")])
        newest = newest.rename_columns(["stream", "measured_at"])
        # Few of the rows, so that what is joined is not all of them.
        recent = rows.filter(pc.is_in(rows["measured_at"], newest["measured_at"].combine_chunks()))
        sizes: dict[tuple[str, str], int] = defaultdict(int)
        for row in recent.join(newest, ["stream", "measured_at"], join_type="inner").to_pylist():
            for part in {"all", "state"} & {"all", row["part"]}:
                sizes[row["stream"], part] += row["bytes"]
        return sizes

    @cached_property
    def generations(self) -> Mapping[str, Generations]:
        rows = _grouped(read_ops(self.lake, "generations").to_pylist(), "stream")
        path = self.lake.ops("generations")
        return {stream: Generations(stream, path, tuple(own)) for stream, own in rows.items()}

    @cached_property
    def entries(self) -> Mapping[str, Sequence[Entry]]:
        """The ledger of each stream, as it is recorded."""
        found = map(entry_of, read_ops(self.lake, "coverage").to_pylist())
        ledger: dict[str, list[Entry]] = defaultdict(list)
        for entry in sorted(found, key=lambda entry: entry.number):
            ledger[entry.stream].append(entry)
        return ledger

    def _since(self, name: str, columns: Sequence[str], instant: str) -> list[Row]:
        rows: list[Row] = read_ops(
            self.lake, name, columns=columns, since=(instant, self.since)
        ).to_pylist()
        return rows

    def coverage(self, stream: Stream) -> Coverage:
        """The table of `stream`, judged by its recorded ledger and by bronze as it is now.

        Whether the table still is what was recorded of it, the check of each run asks.
        """
        generations = self.generations.get(stream.name)
        row = None if generations is None else generations.current
        standpoint = self._standpoint(stream, row)
        return judge(self.lake, self.entries.get(stream.name, ()), standpoint, self._read_late)

    def _standpoint(self, stream: Stream, row: GenerationRow | None) -> Standpoint:
        known = row or {}
        bronze_id, repair = self._bronze(stream.source)
        as_of = known.get("initial_as_of")
        knows = repair is None or knows_reset(row, repair)
        return Standpoint(
            stream=stream.name,
            source=stream.source,
            is_append=known.get("output_mode") == "append",
            in_processing_time=known.get("timeout") == IN_PROCESSING_TIME,
            code=None,
            since_us=None if as_of is None else micros_of(as_of),
            bronze_id=bronze_id,
            reset_us=None if knows or repair is None else repair.reset_at_us,
        )

    @cached_property
    def _bronze(self) -> Callable[[str], tuple[str | None, ClockRepair | None]]:
        @lru_cache(None)
        def read(source: str) -> tuple[str | None, ClockRepair | None]:
            path = self.lake.bronze(source)
            if not self.lake.is_delta_table(path):
                return None, None
            return str(DeltaTable(path).metadata().id), newest_repair(self.lake, source)

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


def _parts(rows: pa.Table, columns: tuple[str, str]) -> dict[tuple[str, str], pa.Table]:
    """Slices of sorted rows, by the values of two columns."""
    if not rows.num_rows:
        return {}
    rows = rows.combine_chunks()
    counts = rows.group_by(list(columns), use_threads=False).aggregate([([], "count_all")])
    found, at = {}, 0
    for row in counts.to_pylist():  # in the order in which they come
        found[row[columns[0]], row[columns[1]]] = rows.slice(at, row["count_all"])
        at += row["count_all"]
    return found
