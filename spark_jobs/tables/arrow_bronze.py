"""Bronze without a JVM: rows stamped by the clock of `lake.bronze`, appended by delta-rs."""

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.lake.columns import INSTANT, documented, without_comments
from include.lake.paths import Lake, LakeError, files_of
from include.landing.bronze_tables import bronze_columns
from include.landing.clock import RESET_KEY, STILL_KEY, Clock, read_logged_clock
from include.landing.clock_repair import app_id
from include.settings import Source
from spark_jobs.tables.arrow_transaction import transaction
from spark_jobs.tables.bronze import clock_set_back


def append_events(
    lake: Lake,
    source: Source,
    events: pa.Table,
    before: Clock,
    after: Clock,
    written_as: tuple[str, int] | None = None,
    marks: Mapping[str, object] | None = None,
) -> None:
    """Append rows to bronze in one commit, which takes its clock from `before` to `after`.

    `events` has the source's fields, `event_time_us`, and `source_file`, null for a clock row.
    """
    commit = CommitProperties(
        custom_metadata={"userMetadata": json.dumps(after.metadata() | dict(marks or {}))},
        app_transactions=None if written_as is None else [transaction(*written_as)],
    )
    rows = _stamped(source, events, before, after)
    write_deltalake(lake.bronze(source.name), rows, mode="append", commit_properties=commit)


def append_still_row(lake: Lake, source: Source) -> None:
    """A clock row that moves no watermark; see `lake.clock_row`. LakeError without a clock."""
    clock = read_clock(lake, source)
    if clock.watermark_us is None:
        raise LakeError(f"{lake.bronze(source.name)} has no row yet: there is no state to compact")
    row = _clock_row(source, clock)
    append_events(lake, source, row, clock, clock, marks={"clock": True, STILL_KEY: True})


def append_reset_row(lake: Lake, source: Source, to_us: int, repair: int, now_us: int) -> None:
    """A clock row that sets M back to `to_us`, once for each number of a repair."""
    written = DeltaTable(lake.bronze(source.name)).transaction_version(app_id(source.name))
    if written is not None and written >= repair:
        return
    before = read_clock(lake, source)
    after = clock_set_back(before, to_us, now_us)
    marks = {"clock": True, RESET_KEY: repair}
    row, once = _clock_row(source, after), (app_id(source.name), repair)
    append_events(lake, source, row, before, after, once, marks)


def _clock_row(source: Source, clock: Clock) -> pa.Table:
    """The one row of a commit that takes the clock to `clock`, as `append_events` takes it."""
    none = {field.name: pa.nulls(1) for field in source.fields}
    return pa.table({**none, "event_time_us": [clock.watermark_us], "source_file": pa.nulls(1)})


def read_clock(lake: Lake, source: Source) -> Clock:
    """The clock of bronze: from the table's log, or from its rows where the log is silent."""
    logged = read_logged_clock(lake, source)
    if logged is not None and (logged.watermark_us is None) == (logged.ingested_at_us is None):
        return logged
    bronze = lake.bronze(source.name)
    files = DeltaTable(bronze).to_pyarrow_dataset(filesystem=files_of(bronze))
    rows = files.to_table(columns=["commit_watermark", "ingested_at"])
    newest = rows.filter(pc.equal(rows["ingested_at"], pc.max(rows["ingested_at"])))
    return Clock(*(pc.max(newest[name].cast(pa.int64())).as_py() for name in newest.column_names))


def _stamped(source: Source, events: pa.Table, before: Clock, after: Clock) -> pa.Table:
    """`events` as bronze stores them."""
    times = events["event_time_us"].cast(pa.int64()).cast(INSTANT)
    schema = without_comments(documented(bronze_columns(source)))
    columns = {field.name: events[field.name] for field in source.fields} | {
        "event_time": times,
        "event_date": times.cast(pa.date32()),
        "ingested_at": _constant(after.ingested_at_us, len(times)),
        "arrival_watermark": _constant(before.watermark_us, len(times)),
        "commit_watermark": _constant(after.watermark_us, len(times)),
        "source_file": events["source_file"],
        "is_clock": pc.is_null(events["source_file"]),
    }
    return pa.table(columns).cast(schema)


def _constant(micros: int | None, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(micros, pa.int64()), length).cast(INSTANT)
