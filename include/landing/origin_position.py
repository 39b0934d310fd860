"""The position of a source whose rows come from a topic or a table (include/origins.py).

It has one column more than that of landed files: the id of that topic or table.
"""

from collections.abc import Sequence
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from include.lake.columns import create_if_absent
from include.lake.commits import transaction
from include.lake.delta_log import open_table, table_to_write
from include.lake.ops import with_all_columns
from include.lake.paths import Lake
from include.landing.batch import Batch
from include.landing.ingest_position import app_id
from include.landing.position_rows import COLUMNS, COMMENT, ORIGIN_ID, done_row, plan_rows
from include.settings import SettingsError, Source


def refuse_other_origin(lake: Lake, source: Source) -> None:
    """SettingsError when what was taken for it until now came from elsewhere."""
    path = lake.ingested_files(source.name)
    if not lake.is_delta_table(path):
        return
    names = [field.name for field in open_table(path).schema().fields]
    if (ORIGIN_ID.name in names) != (source.origin is not None):
        raise SettingsError(
            f"source {source.name} has been taken from elsewhere ({path}): where it comes from is "
            "not changed. A source of another name can come from there",
            code="settings_changed",
            subject=source.name,
        )


def ensure_origin_position(lake: Lake, source: str) -> None:
    """Make the table of a source whose rows come from a topic or a table, without a row."""
    path = lake.ingested_files(source)
    create_if_absent(path, (*COLUMNS, ORIGIN_ID), COMMENT, {}, name=uuid4().hex)


def write_taken(
    lake: Lake, source: str, planned: Sequence[Batch], done: Sequence[tuple[Batch, int, int]]
) -> None:
    """Plan batches, and say that some are done, with their rows in the tables: in one commit."""
    table = table_to_write(lake.ingested_files(source))
    parts = [plan_rows(batch) for batch in planned]
    parts += [done_row(batch.number, batch.ingested_at_us, *rows) for batch, *rows in done]
    newest = planned[-1]
    names = ("plan", "done") if done else ("plan",)
    once = CommitProperties(
        max_commit_retries=0,
        app_transactions=[
            transaction(app_id(source, name, newest.position_id), newest.number) for name in names
        ],
    )
    rows = with_all_columns(pa.concat_tables(parts, promote_options="default"), table)
    write_deltalake(table, rows, mode="append", commit_properties=once)
