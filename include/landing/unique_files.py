"""Landed files that have the content of one that was taken: copies, which give no rows.

Content is known by its SHA-256, which is planned with the file (ingest_position.py): a batch that is
repeated has the same copies. Of a file that was refused as a whole no row was taken. So it has no
copies: what has its content may come under another name, and is judged by today's declaration.
"""

import hashlib
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache, partial
from typing import NamedTuple

import pyarrow.compute as pc
from deltalake import CommitProperties, Schema, write_deltalake

from include.fold.instants import US_PER_MS, micros_of
from include.lake.columns import documented
from include.lake.delta_log import table_to_write
from include.lake.findings import Finding, record_findings
from include.lake.ops import despite_others, with_all_columns
from include.lake.paths import Lake
from include.lake.read_tables import dataset_of
from include.landing.arrivals import Cut, Listed
from include.landing.batch import Batch, Position
from include.landing.ingest_position import read_position
from include.landing.ingest_seal import REINGESTED_KEY
from include.landing.landed_file import opener_of
from include.landing.landed_files import landing_root
from include.landing.landed_folder import folders_of
from include.landing.open_landed import FileGoneError, open_landed
from include.landing.parse_files import REINGESTED_ROW, WHOLE_FILE, Outcome, file_outcome
from include.landing.position_rows import CONTENT_COLUMNS, plan_rows
from include.landing.refusals import UnreadableFileError
from include.settings import MIB, Source

# Reading waits for disks and networks, and the hash of what is read for no other thread.
THREADS = 8
PIECE = 4 * MIB
NAMED = 5


class UniqueFiles(NamedTuple):
    """Files in landing, of which copies are told apart. `cut` and `sizes` as `Arrivals` has them."""

    lake: Lake
    listed: Listed

    def cut(self, source: Source, position: Position) -> Cut:
        names = self.listed.cut(source, position).files
        hashes = hashes_of(self.lake, source.name, names)
        copies = copies_among(
            self.lake, source, position, [file.name for file in self.listed.files], hashes
        )
        files = tuple(name for name in names if name not in copies)
        return Cut(files, hashes=hashes, copies=copies)

    def sizes(self, files: Iterable[str]) -> Mapping[str, int]:
        return self.listed.sizes(tuple(files))


def hashes_of(lake: Lake, source: str, names: Iterable[str]) -> dict[str, str]:
    """Of the files below landing; not of one that cannot be read: whoever parses it says why."""
    read = partial(_hash_of, lake, landing_root(lake, source))
    with ThreadPoolExecutor(THREADS) as pool:
        found = zip(names, pool.map(read, names), strict=True)
        return {name: content for name, content in found if content is not None}


def _hash_of(lake: Lake, root: str, name: str) -> str | None:
    content = hashlib.sha256()
    try:
        with open_landed(lake, root, name) as opened:
            while piece := opened.file.read(PIECE):
                content.update(piece)
    except (UnreadableFileError, FileGoneError):
        return None
    return content.hexdigest()


def copies_among(
    lake: Lake, source: Source, position: Position, names: Iterable[str], hashes: Mapping[str, str]
) -> dict[str, str]:
    """Which of the files `names` that have a hash are copies, and of which: of one that was taken, or
    that comes before it."""
    known: dict[str, list[str]] = {}
    copies: dict[str, str] = {}
    refused = cache(lambda: refused_files(lake, source.name))  # two tables are read for it
    for name in names:
        if (content := hashes.get(name)) is None:
            continue
        if content not in known:
            taken = position.contents.get(content, ())
            known[content] = [other for other in taken if other not in refused()]
        reads = _reads(name, source)
        like = (other for other in known[content] if _reads(other, source) == reads)
        if (original := next(like, name)) == name:
            known[content].append(name)
        else:
            copies[name] = original
    return copies


def _reads(name: str, source: Source) -> tuple[object, ...]:
    """What its name says of its rows: of the same bytes another ending, or folder, makes others."""
    return opener_of(name), *folders_of(name, source)


def refused_files(lake: Lake, source: str) -> frozenset[str]:
    """Those that quarantine has as a whole, and that were not taken in since, be it by a re-ingestion
    that died before it said so there."""
    names = _open_as_a_whole(lake, source)
    return names - _reingested(lake, source) if names else names


def half_reingested(lake: Lake, source: str) -> frozenset[str]:
    """Those that quarantine has as a whole, and of which bronze has rows all the same: a re-ingestion
    died before it wrote what it refused of them."""
    names = _open_as_a_whole(lake, source)
    return names & _reingested(lake, source) if names else names


def _open_as_a_whole(lake: Lake, source: str) -> frozenset[str]:
    rows = dataset_of(lake.quarantine(source)).to_table(
        columns=["source_file"],
        filter=(pc.field("row_number") == WHOLE_FILE) & pc.field("resolved_at").is_null(),
    )
    return frozenset(rows["source_file"].to_pylist())


def _reingested(lake: Lake, source: str) -> frozenset[str]:
    """The files of which bronze has rows that were taken in again."""
    of_quarantine = pc.match_substring_regex(pc.field("source_file"), REINGESTED_ROW)
    bronze = dataset_of(lake.bronze(source))
    rows = bronze.to_table(columns=["source_file"], filter=of_quarantine)["source_file"]
    return frozenset(name.rpartition("#")[0] for name in rows.unique().to_pylist())


def copies_of_mended(lake: Lake, source: Source, now: datetime) -> dict[str, str]:
    """Of the files that were refused as a whole, those that are copies as they are in landing today.

    What the others have today is noted, before their rows are taken: it may have been mended.
    """
    position = read_position(lake, source.name)
    if position is None or not source.unique_files:
        return {}
    ensure_hashes(lake, source.name)
    names = sorted(refused_files(lake, source.name))
    hashes = hashes_of(lake, source.name, names)
    copies = copies_among(lake, source, position, names, hashes)
    mended = {
        name: content
        for name, content in hashes.items()
        if name not in copies and name not in position.contents.get(content, ())
    }
    if mended:
        _note(lake, source.name, position, mended, now)
    record_findings(lake, None, source.name, copy_findings(source, copies))
    return copies


def read_but(
    copies: Container[str], read: Callable[[str], Iterator[Outcome]], name: str
) -> Iterator[Outcome]:
    """The outcomes that `read` gives of a file; of a copy none but that it is read."""
    return iter([file_outcome(name, 0)]) if name in copies else read(name)


def _note(
    lake: Lake, source: str, position: Position, hashes: Mapping[str, str], now: datetime
) -> None:
    done = position.newest if position.open is None else position.open.number - 1
    at_us = max(micros_of(now), _newest_us(lake, source) + US_PER_MS)
    rows = plan_rows(Batch(position.id, done, tuple(hashes), at_us, hashes=hashes))
    ours = CommitProperties(custom_metadata={"userMetadata": json.dumps({REINGESTED_KEY: True})})

    def write() -> None:
        table = table_to_write(lake.ingested_files(source))
        write_deltalake(table, with_all_columns(rows, table), mode="append", commit_properties=ours)

    despite_others(write)


def _newest_us(lake: Lake, source: str) -> int:
    """When the newest file was planned: the clock of the machine may have been ahead then, and of what
    was noted of a file the newest counts."""
    planned = dataset_of(lake.ingested_files(source)).to_table(columns=["ingested_at"])
    newest = pc.max(planned["ingested_at"]).as_py()  # None: all are of an earlier release
    return 0 if newest is None else micros_of(newest)


def ensure_hashes(lake: Lake, source: str) -> None:
    """Give the position the columns for hashes and copies, where it has none: no row is rewritten."""

    def add() -> None:
        table = table_to_write(lake.ingested_files(source))
        known = {field.name for field in table.schema().fields}
        if new := [column for column in CONTENT_COLUMNS if column.name not in known]:
            table.alter.add_columns(Schema.from_arrow(documented(new)).fields)

    despite_others(add)


def _named(copies: Mapping[str, str]) -> str:
    named = ", ".join(f"{name} (of {original})" for name, original in list(copies.items())[:NAMED])
    return named + (f" and {len(copies) - NAMED} more" if len(copies) > NAMED else "")


def untaken_findings(lake: Lake, source: Source, copies: Mapping[str, str]) -> list[Finding]:
    """Of a batch's copies, those of a file that was refused as a whole: it may have been replaced
    between its plan and its reading, and then nobody has taken what they have."""
    refused = refused_files(lake, source.name) if copies else frozenset()
    untaken = {name: original for name, original in copies.items() if original in refused}
    if not untaken:
        return []
    return [
        Finding(
            finding="copies_not_taken",
            severity="warning",
            count=len(untaken),
            detail=f"files in landing/{source.name} have the content that another one had, which was "
            f"refused as a whole since: {_named(untaken)}. No row of them was taken",
            action="let those that are to be taken land under other names (a re-ingestion does not take them)",
        )
    ]


def copy_findings(source: Source, copies: Mapping[str, str]) -> list[Finding]:
    """Of a run's copies."""
    if not copies:
        return []
    return [
        Finding(
            finding="files_duplicate",
            severity="info",
            count=len(copies),
            detail=f"files in landing/{source.name} have the content of others, and were not taken "
            f"again: {_named(copies)}. ingested_files/{source.name} has each in its column copy_of",
        )
    ]
