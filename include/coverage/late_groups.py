"""The late rows of bronze: those that a live fold left out, by event date and commit.

What is late is a property of the row and of a stream's delay, so this asks nobody what a run
has counted. The table's log leaves out nearly all files: only one that has an event at or
before its own newest arrival watermark, less the delay, can hold a late row.
"""

from dataclasses import dataclass
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.fold.instants import instant_of, micros_of
from include.lake.paths import Lake
from include.lake.read_tables import table_to_read
from include.savepoints.bronze_files import BronzeFiles, known, read_files

COLUMNS = ["event_time", "arrival_watermark", "ingested_at", "is_clock"]
GROUP = ["event_date", "ingested_at"]
ANY_DELAY_US = 10**6 * 86_400 * 365 * 100  # no row is further ahead of the clock
MEASURES = [("event_time", "count"), ("event_time", "min"), ("event_time", "max")]


@dataclass(frozen=True)
class LateGroup:
    """The late rows that one commit brought for one event date; the last is at `last_us`."""

    date: date
    ingested_at_us: int
    rows: int
    first_us: int
    last_us: int


def late_groups(
    lake: Lake, source: str, delay_us: int, since_us: int | None, after_us: int | None
) -> list[LateGroup]:
    """The late rows under `delay_us`, ingested after `after_us` (None: ever), oldest commit first.

    Rows before `since_us` are left out: an initial state stands for them, late or not.
    """
    path = lake.bronze(source)
    if not lake.is_delta_table(path):
        return []
    table = table_to_read(path)
    paths = _paths(table, delay_us, since_us, after_us)
    wanted = _is_late(delay_us, since_us, after_us)
    parts = [
        _grouped(pa.Table.from_batches([b])) for b in read_files(table, paths, COLUMNS, wanted)
    ]
    if not parts:
        return []
    found = pa.concat_tables(parts).group_by(GROUP)
    whole = found.aggregate([("rows", "sum"), ("first", "min"), ("last", "max")]).to_pylist()
    groups = [_group(*row.values()) for row in whole]
    return sorted(groups, key=lambda group: (group.ingested_at_us, group.date))


def groups_since(lake: Lake, source: str, since_us: int | None, after_us: int) -> list[LateGroup]:
    """All rows ingested after `after_us`, late or not, in groups like these."""
    return late_groups(lake, source, -ANY_DELAY_US, since_us, after_us)


def _paths(
    table: DeltaTable, delay_us: int, since_us: int | None, after_us: int | None
) -> list[str]:
    files = BronzeFiles(table)
    first, last = files.span("event_time")
    none = pc.greater(first, pc.subtract(files.latest("arrival_watermark"), delay_us))
    if since_us is not None:
        none = pc.or_kleene(none, pc.less(last, since_us))
    if after_us is not None:
        none = pc.or_kleene(none, pc.less_equal(files.latest("ingested_at"), after_us))
    return files.paths_but(known(none))


def _is_late(delay_us: int, since_us: int | None, after_us: int | None) -> pc.Expression:
    delay = pa.scalar(delay_us, pa.duration("us"))
    late = pc.field("event_time") <= pc.field("arrival_watermark") - delay
    if since_us is not None:
        late &= pc.field("event_time") >= pa.scalar(instant_of(since_us))
    if after_us is not None:
        late &= pc.field("ingested_at") > pa.scalar(instant_of(after_us))
    return late & ~pc.field("is_clock")


def _grouped(rows: pa.Table) -> pa.Table:
    # Not the column event_date: partitions are not in the files.
    days = pc.cast(pc.cast(rows["event_time"], pa.timestamp("us")), pa.date32(), safe=False)
    rows = rows.append_column("event_date", days)
    found = rows.group_by(GROUP).aggregate(MEASURES)
    names = [f"event_time_{function}" for _, function in MEASURES]
    return found.select([*GROUP, *names]).rename_columns([*GROUP, "rows", "first", "last"])


def _group(
    day: date, ingested_at: datetime, rows: int, first: datetime, last: datetime
) -> LateGroup:
    return LateGroup(day, micros_of(ingested_at), rows, micros_of(first), micros_of(last))
