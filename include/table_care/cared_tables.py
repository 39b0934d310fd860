"""The tables that are optimized and vacuumed: where each lies, and who writes it."""

from collections.abc import Sequence
from dataclasses import dataclass

from include.lake import Lake
from include.ops_schemas import SCHEMAS
from include.streams import SOURCES, STREAMS, SettingsError


@dataclass(frozen=True)
class CaredTable:
    """A table of the lake. Each has one writing engine, and only that may change its files."""

    name: str  # below the lake, such as bronze/signals
    path: str
    # What Spark's jobs on it hold; None for an ops table, which delta-rs writes.
    lease: str | None
    # Streams read bronze commit by commit; of all others, readers take the newest version.
    is_bronze: bool = False


def cared_tables(lake: Lake) -> list[CaredTable]:
    """All tables of the lake that are known, whether they are there yet or not."""
    tables = []
    for source in (source.name for source in SOURCES):
        lease = f"ingest-{source}"
        tables.append(CaredTable(f"bronze/{source}", lake.bronze(source), lease, is_bronze=True))
        tables.append(CaredTable(f"quarantine/{source}", lake.quarantine(source), lease))
    for stream in (stream.name for stream in STREAMS):
        tables.append(CaredTable(f"tables/{stream}", lake.table(stream), f"stream-{stream}"))
    tables += [CaredTable(f"ops/{name}", lake.ops(name), lease=None) for name in SCHEMAS]
    return tables


def spark_tables_named(lake: Lake, names: Sequence[str]) -> list[CaredTable]:
    """The tables of those names; SettingsError for one that is not known, or not Spark's."""
    known = {table.name: table for table in cared_tables(lake) if table.lease}
    for name in names:
        if name not in known:
            raise SettingsError(f"unknown table {name!r}: known are {', '.join(known)}")
    return [known[name] for name in names]
