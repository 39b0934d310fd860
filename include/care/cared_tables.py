"""The tables that are optimized and vacuumed: where each lies, and who cares for it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyarrow import fs

from include.lake.ops_schemas import SCHEMAS
from include.lake.paths import Lake
from include.registry import all_sources, stream_names
from include.settings import SettingsError


@dataclass(frozen=True)
class CaredTable:
    """A table of the lake. Each has one engine that joins and deletes its files."""

    name: str  # below the lake, such as bronze/signals
    path: str
    # What Spark's job on it holds; None for a table of small rows, which delta-rs cares for.
    lease: str | None
    # Streams read bronze commit by commit; of all others, readers take the newest version.
    is_bronze: bool = False
    savepoints_of: str | None = None  # the stream whose savepoints it has


def cared_tables(lake: Lake) -> list[CaredTable]:
    """All tables of the lake that are known, whether they are there yet or not."""
    tables = []
    for source in (source.name for source in all_sources()):
        lease = f"ingest-{source}"
        tables.append(CaredTable(f"bronze/{source}", lake.bronze(source), lease, is_bronze=True))
        tables.append(CaredTable(f"quarantine/{source}", lake.quarantine(source), lease))
        path = lake.ingested_files(source)
        tables.append(CaredTable(f"ingested_files/{source}", path, lease=None))
    for stream in stream_names():
        tables.append(CaredTable(f"tables/{stream}", lake.table(stream), f"stream-{stream}"))
        tables.append(CaredTable(f"rejected/{stream}", lake.rejected(stream), f"stream-{stream}"))
        tables += _savepoint_tables(lake, stream)
    tables += [CaredTable(f"ops/{name}", lake.ops(name), lease=None) for name in SCHEMAS]
    return tables


def _savepoint_tables(lake: Lake, stream: str) -> Iterator[CaredTable]:
    """States of another kind, from before a migration, are in tables of their own: -2, -3, ...

    Whoever reads savepoints holds the lease of the stream, as those do who write them.
    """
    numbered = re.compile(rf"{stream}-[0-9]+")
    folder = lake.path_in_filesystem(f"{lake.root}/savepoints")
    found = lake.filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    others = sorted(info.base_name for info in found if numbered.fullmatch(info.base_name))
    for name in (stream, *others):
        path, lease = lake.savepoints(name), f"stream-{stream}"
        yield CaredTable(f"savepoints/{name}", path, lease, savepoints_of=stream)


def spark_tables_named(lake: Lake, names: Sequence[str]) -> list[CaredTable]:
    """The tables of those names; SettingsError for one that is not known, or not Spark's.

    `savepoints/<stream>` stands for all of the stream's tables of savepoints: how many there
    are, nobody knows before the lake is opened.
    """
    known = [table for table in cared_tables(lake) if table.lease]
    chosen: dict[str, CaredTable] = {}
    for name in names:
        found = [table for table in known if name in (table.name, _family(table))]
        if not found:
            all_names = ", ".join(table.name for table in known)
            raise SettingsError(
                f"unknown table {name!r}: known are {all_names}", code="unknown_table", subject=name
            )
        chosen |= {table.name: table for table in found}
    return list(chosen.values())


def _family(table: CaredTable) -> str:
    # No name of a stream has a hyphen.
    return table.name.partition("-")[0]
