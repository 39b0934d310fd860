"""The connector of a merged source: the rows of its inputs' bronze, by time.

An input is complete until its watermark less its delay, and the whole until the least of those that are not idle.
Rows are taken as that moves on, of all inputs until one instant; what an input has ingested since of before it
is late, as is all of an input that was idle, and wakes behind.

So below its watermark bronze has the rows of its inputs as of the commits that a commit to its log names, also
those with weights: of what is taken by time `net` is left, and no row of weight -1 is ever folded live.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import MICROSECOND, instant_of, micros_of
from include.ingest.ingest_log import SCHEMA, Entry, Ingestion, Logged, newest_batch, read_log
from include.ingest.parse_files import Counts, Parse
from include.ingest.splits import ConnectorError, Done, Lag, Split
from include.ingest.stream_table import (
    BEGINNING_US,
    EVENT_TIME,
    OF_BRONZE,
    DerivedConnector,
    rows_within,
    splits_in_bronze,
    step_end_us,
)
from include.ingest.watermark import SourceWatermark, advance_watermark, move_watermark
from include.lake.columns import instant_scalar
from include.lake.multiset import WEIGHT, has_weights, net
from include.lake.paths import Lake
from include.lake.table import Table
from include.registry import source_named
from include.settings import Source

ONE = pa.scalar(1, pa.int32())  # the weight of a row that is there


@dataclass(frozen=True)
class Input:
    """Bronze of an input as of its newest commit, at `ingested_at_us`."""

    source: Source
    table: Table
    ingested_at_us: int
    reached_us: int  # its watermark less its delay

    @property
    def origin(self) -> str:
        return str(self.table.delta.metadata().id)

    def is_other(self, known: Split) -> bool:
        """True if it is not the table of which rows were taken, or an older copy of it."""
        return self.origin != known.origin_id or self.ingested_at_us < known.first

    def rows(
        self,
        merged: Source,
        until_us: int,
        from_us: int = BEGINNING_US,
        after_us: int | None = None,
    ) -> pa.Table:
        """The rows of these instants, ingested after `after_us`, as events with their weights."""
        own = {field.name for field in self.source.fields}
        is_weighted = has_weights(self.table.delta)
        names = {f.name: f.landed if f.landed in own else "" for f in merged.fields}
        names |= {EVENT_TIME: "event_time", WEIGHT: WEIGHT if is_weighted else ""}
        wanted = ~pc.field("is_heartbeat")
        if after_us is not None:
            wanted &= pc.field("ingested_at") > instant_scalar(after_us)
        spans = [(from_us, until_us)] if from_us < until_us else []
        rows = rows_within(self.table, merged, names, OF_BRONZE, spans, wanted)
        own_name = self.source.name
        values: dict[str, Any] = {str(merged.watermark_per): own_name}
        values |= {"source_file": f"bronze/{own_name}"} | ({} if is_weighted else {WEIGHT: ONE})
        for name, value in values.items():
            column = pa.repeat(value, rows.num_rows)
            rows = rows.drop_columns({name} & {*rows.column_names}).append_column(name, column)
        return rows.select(sorted(rows.column_names))

    def taken(self, merged: Source, known: Split | None, new: tuple[int, int]) -> pa.Table:
        """The rows of the instants `new`, and those before that it has ingested since it was `known`."""
        late = self.rows(merged, new[0], after_us=known and known.first)
        rows = net(self.rows(merged, new[1], new[0]))
        rows = rows.append_column(WEIGHT, pa.repeat(ONE, rows.num_rows))
        return pa.concat_tables([late, rows.select(late.column_names)])


def _input(lake: Lake, merged: Source, name: str) -> Input | None:
    """An input; None where nothing of it is ingested. LakeError where bronze and its log do not fit."""
    source, path = source_named(name), lake.bronze(name)
    if not lake.is_delta_table(path):
        return None
    table = Table.read(lake, path)
    logged = read_log(lake, name) or Logged(SCHEMA.empty_table())
    reached = logged.watermark(source, newest_batch(table, logged))
    if reached.watermark_us is None or reached.ingested_at_us is None:
        return None
    reached_us = reached.watermark_us - merged.inputs[name] // MICROSECOND
    return Input(source, table, reached.ingested_at_us, reached_us)


@dataclass(frozen=True)
class MergedConnector(DerivedConnector):
    """The connector of a merged source."""

    lake: Lake
    source: Source

    @cached_property
    def inputs(self) -> dict[str, Input | None]:
        return {name: _input(self.lake, self.source, name) for name in self.source.inputs}

    def take_next(
        self, ingestion: Ingestion, parse: Parse | None = None, run_id: str | None = None
    ) -> Counts | None:
        """Take what is complete by now, in one commit; None where nothing has come."""
        done, before = ingestion.logged.done(), ingestion.watermark()
        known = _known(split for _, split in done.splits)
        moved = self._moved(known)
        if not self._has_step(moved, before):
            return None
        inputs = {name: each for name, each in self.inputs.items() if each is not None}
        after = self._after(before, moved)
        assert after.watermark_us is not None
        from_us = BEGINNING_US if before.watermark_us is None else before.watermark_us + 1
        new, most = (from_us, after.watermark_us + 1), self.source.commit_bytes
        end_us = min(step_end_us(each.table, "event_date", new, most) for each in inputs.values())
        after, new = replace(after, watermark_us=end_us - 1), (from_us, end_us)
        events = pa.concat_tables(
            each.taken(self.source, known.get(name), new) for name, each in inputs.items()
        )
        splits = [
            Split(name, None, each.ingested_at_us, end_us, each.origin)
            for name, each in inputs.items()
        ]
        # Also where nothing moves: time passes for who is silent.
        return self.commit(ingestion, Entry(before, after, splits=splits), events, is_beat=True)

    def lag(self, done: Done) -> Lag:
        """1 for a step to take."""
        logged = read_log(self.lake, self.source.name)
        before = SourceWatermark() if logged is None else logged.watermark(self.source)
        has_step = self._has_step(self._moved(_known(split for _, split in done.splits)), before)
        return Lag(int(has_step), is_little=True, held=self._held(before))

    def first_not_taken(self) -> tuple[int, str] | None:
        """The first instant of which bronze lacks a row that it would have by now, and why."""
        known = _known(splits_in_bronze(self.lake, self.source.name))
        try:
            moved = self._moved(known)
        except ConnectorError as error:
            return BEGINNING_US, error.message
        until_us = max((split.until for split in known.values()), default=BEGINNING_US)
        found = []
        for name, each in moved.items():
            after_us = known[name].first if name in known else None
            first = pc.min(each.rows(self.source, until_us, after_us=after_us)[EVENT_TIME]).as_py()
            if first is not None:
                found.append((first, f"{self.source.name} lacks rows of {name} that came late"))
        return min(found, default=None)

    def _moved(self, known: dict[str, Split]) -> dict[str, Input]:
        """The inputs that have ingested something since; ConnectorError for one that is not what was taken of."""
        moved = dict[str, Input]()
        for name, each in self.inputs.items():
            split = known.get(name)
            if split is not None and (each is None or each.is_other(split)):
                raise ConnectorError(
                    f"bronze of {name} is not that of which {self.source.name} has rows: it was made anew, or an "
                    "older copy put back. Begin anew, too",
                    subject=self.source.name,
                    command=f"./stateful ingest {self.source.name} --from-scratch --apply",
                )
            if each is not None and (split is None or each.ingested_at_us > split.first):
                moved[name] = each
        return moved

    def _has_step(self, moved: dict[str, Input], before: SourceWatermark) -> bool:
        if None in self.inputs.values():
            return False
        return bool(moved) or before.watermark_us != _least_us(before)  # one was cut

    def _after(self, before: SourceWatermark, moved: dict[str, Input]) -> SourceWatermark:
        """The watermark after a commit of all that is complete, once these inputs have moved."""
        now_us, groups = micros_of(datetime.now(UTC)), before.groups
        assert groups is not None
        if not moved:
            least_us = _least_us(before)
            assert least_us is not None
            return replace(move_watermark(before, least_us, now_us), groups=groups)
        # One whose watermark was set back is where that is now.
        others = self.inputs.keys() - moved.keys()
        of = {name: group for name, group in groups.of.items() if name in others}
        before = replace(before, groups=replace(groups, of=of))
        reached = {name: each.reached_us for name, each in moved.items()}
        return advance_watermark(before, max(reached.values()), now_us, reached)

    def _held(self, before: SourceWatermark) -> str | None:
        """The reason why nothing can be taken yet; None: nothing holds it back."""
        for name, each in self.inputs.items():
            if each is None:
                return f"nothing of {name} is ingested yet"
            if before.watermark_us is not None and each.reached_us < before.watermark_us:
                at, until = instant_of(each.reached_us), instant_of(before.watermark_us)
                return f"{name} is complete until {at} only, {self.source.name} until {until}"
        return None


def _known(splits: Iterable[Split]) -> dict[str, Split]:
    """The newest split of each input."""
    return {str(split.name): split for split in splits}


def _least_us(known: SourceWatermark) -> int | None:
    """The watermark by the groups that are not idle; it never goes back."""
    awake = [] if known.groups is None else known.groups.awake()
    if known.watermark_us is None or not awake:
        return known.watermark_us
    return max(known.watermark_us, awake[0][0])
