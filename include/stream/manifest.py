"""Savepoints, each a folder `savepoints/<stream>/<id>`: Parquet files with states, and a manifest.

The manifest is written last: a folder without a whole one is no savepoint, and is deleted when the
next one is written or deleted. An id begins with the instant of the state.

A savepoint is valid when it holds all events of bronze before its instant, and was made by today's
code. Late rows end that, so events are counted each time.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import file_digest, sha256
from typing import Any, Literal

import pyarrow.dataset as ds
from pyarrow import fs

from include.fold.admission import MICROSECOND, instant_of
from include.lake.errors import SettingsError, StatefulError
from include.lake.generations import GenerationRow
from include.lake.lease import check_held
from include.lake.paths import Lake
from include.lake.table import Staged
from include.settings import SavepointRules
from include.stream.bronze import BronzeVersion, count_before, has_commit

MANIFEST = "manifest.json"
READERS = 8  # of files at once
READ_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Savepoint:
    """The manifest of a savepoint. Instants in microseconds."""

    savepoint_id: str
    stream: str
    until_us: int  # it is the state of all events before this, on the stream's clock
    created_at: datetime
    kind: str  # live, on_demand, restate or rebuild
    run_id: str  # of the run (`ops/runs`) that wrote it
    keys: int
    events: int  # bronze rows that are folded into it
    bronze_id: str
    bronze_ingested_at_us: int | None  # of the newest row that it has read
    code: str | None  # the one code that made all of it; None: there is no such
    state_schema: str  # Spark DDL; without `bucket` that of the files
    files: Mapping[str, str] = field(hash=False)  # digests of the files in its folder, by name

    @property
    def until(self) -> datetime:
        return instant_of(self.until_us)

    def folder(self, lake: Lake) -> str:
        return lake.savepoint(self.stream, self.savepoint_id)


def savepoints_of(lake: Lake, stream: str) -> list[Savepoint]:
    """The savepoints of `stream`, by `until_us` and then by `created_at`."""
    found = _newest_first(lake, stream)
    return sorted(found, key=lambda savepoint: (savepoint.until_us, savepoint.created_at))


def newest_savepoint(lake: Lake, stream: str) -> Savepoint | None:
    """The savepoint of the latest instant; None before the first."""
    return next(_newest_first(lake, stream), None)


def _newest_first(lake: Lake, stream: str) -> Iterator[Savepoint]:
    folder = lake.path_in_filesystem(lake.savepoints(stream))
    below = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    found = sorted(lake.filesystem.get_file_info(below), key=lambda info: info.path)
    for info in (info for info in reversed(found) if info.base_name == MANIFEST):
        if savepoint := _read(lake, info.path, info.size, info.mtime_ns):
            yield savepoint


# A manifest never changes, and a backfill asks for all of them at each interval.
@lru_cache(maxsize=10_000)
def _read(lake: Lake, path: str, size: int, mtime_ns: int) -> Savepoint | None:
    """Read a manifest; None for one that is not whole."""
    try:
        with lake.filesystem.open_input_stream(path) as file:
            manifest = json.loads(file.read())
        if manifest["digest"] != _digest_of(known := manifest["savepoint"]):
            return None
        return Savepoint(**known | {"created_at": datetime.fromisoformat(known["created_at"])})
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None


def _digest_of(known: Mapping[str, Any]) -> str:
    return sha256(json.dumps(known, default=str, sort_keys=True).encode()).hexdigest()


def write_manifest(lake: Lake, staged: Sequence[Staged], **columns: Any) -> Savepoint:
    """Make a savepoint of the files staged in its folder; `columns`: its other fields."""
    folder = lake.savepoint(columns["stream"], columns["savepoint_id"])
    files = _digests(lake, folder, [file.path for file in staged])
    keys = sum(file.rows for file in staged)
    savepoint = Savepoint(keys=keys, files=files, created_at=datetime.now(UTC), **columns)
    known = asdict(savepoint)
    manifest = {"savepoint": known, "digest": _digest_of(known)}
    check_held()
    lake.write(f"{folder}/{MANIFEST}", json.dumps(manifest, default=str, indent=1).encode())
    return savepoint


def _digests(lake: Lake, folder: str, names: Collection[str]) -> dict[str, str]:
    def digest(name: str) -> str:
        path = lake.path_in_filesystem(f"{folder}/{name}")
        with lake.filesystem.open_input_stream(path, buffer_size=READ_BYTES) as file:
            return file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor(READERS) as readers:
        return dict(zip(names, readers.map(digest, names), strict=True))


def refuse_damaged(lake: Lake, savepoint: Savepoint) -> None:
    """Raise SavepointError when a file is gone, or its bytes are not those that were written."""
    folder = savepoint.folder(lake)
    try:
        found = _digests(lake, folder, savepoint.files)
    except FileNotFoundError:
        found = {}
    if found != savepoint.files:
        said = f"a file of {folder} is gone, or is not what was written"
        raise SavepointError(said, subject=savepoint.savepoint_id)


def states_in(lake: Lake, savepoint: Savepoint) -> ds.Dataset:
    """The rows of a savepoint; the checksums of their pages are checked as they are read."""
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    folder = lake.path_in_filesystem(savepoint.folder(lake))
    paths = [f"{folder}/{name}" for name in savepoint.files]
    kind = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    return ds.dataset(paths, format=kind, filesystem=lake.filesystem)


def keep_savepoints(lake: Lake, stream: str, retained: Collection[Savepoint]) -> None:
    """Delete all savepoints of `stream` but these, and broken ones. Under the stream's lease."""
    ids = {savepoint.savepoint_id for savepoint in retained}
    for name in (name for name in lake.folders(lake.savepoints(stream)) if name not in ids):
        folder = lake.savepoint(stream, name)
        check_held()
        lake.delete(f"{folder}/{MANIFEST}")  # first, so that no replay starts with it
        lake.delete(folder)


class SavepointError(StatefulError):
    """The files of a savepoint are not those that its manifest names."""

    code = "unreadable_savepoint"
    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class StreamIdentity:
    """A stream as its file is now."""

    stream: str
    source: str
    output_mode: Literal["append", "update"]
    time_column: Literal["event_time", "ingested_at"]  # of bronze: the stream's clock
    delay_us: int  # of the watermark
    code: str  # fingerprint of its file, settings and initial state
    state_schema: str
    since_us: int | None  # `as_of` of the initial state: earlier rows of bronze are not folded


UNTIL_IN_ID = "%Y%m%dT%H%M%S%f"
MAPPED_FROM = "+"


# The lineage of a state is the fingerprint of its code, and the id of the savepoint of an older
# schema whose states were mapped, if any were: `0f3a...+20260105T000000000000-1b2c3d4e`.
def code_of(lineage: str) -> str:
    """The fingerprint of the code alone."""
    return lineage.partition(MAPPED_FROM)[0]


def mapped_savepoint(lineage: str | None) -> str | None:
    """The id of the savepoint whose states were mapped; None if none were."""
    return (lineage or "").partition(MAPPED_FROM)[2] or None


def until_of(savepoint_id: str) -> datetime:
    """The instant of a savepoint, which its id begins with."""
    return datetime.strptime(savepoint_id.partition("-")[0], UNTIL_IN_ID).replace(tzinfo=UTC)


@dataclass(frozen=True)
class StartingSavepoint:
    """The start of a replay. Without a savepoint: the initial state, or the beginning."""

    savepoint: Savepoint | None
    until_us: int | None  # bronze rows from here on are replayed; None: all
    events: int  # bronze rows that are folded into it
    mapped: bool = False  # its states, of an older schema, are mapped to the new one

    def lineage(self, code: str) -> str:
        """The lineage of the states that `code` makes from here on."""
        if self.savepoint is None:
            return code_of(code)
        return f"{code_of(code)}{MAPPED_FROM}{self.savepoint.savepoint_id}" if self.mapped else code

    def text(self) -> str:
        """Return its name for a terminal."""
        if self.savepoint is not None:
            return f"savepoint {self.savepoint.savepoint_id}"
        return "the beginning" if self.until_us is None else "the initial state"


def valid_savepoints(
    savepoints: Sequence[Savepoint], identity: StreamIdentity, bronze: BronzeVersion
) -> list[Savepoint]:
    """The savepoints of today's code that hold all events of the bronze version before them."""
    return _holding_all([sp for sp in savepoints if sp.code == identity.code], identity, bronze)


def _holding_all(
    savepoints: Sequence[Savepoint], identity: StreamIdentity, bronze: BronzeVersion
) -> list[Savepoint]:
    """Return the savepoints, of any code, that hold all events of bronze before their instants."""
    since_us = identity.since_us
    # A replay from before the initial state's instant would fold rows that are in that state.
    ours = [
        savepoint
        for savepoint in savepoints
        if savepoint.bronze_id == bronze.table_id
        and (since_us is None or savepoint.until_us >= since_us)
    ]
    cutoffs = [savepoint.until_us for savepoint in ours]
    counts = count_before(bronze, identity.time_column, since_us, cutoffs_us=cutoffs)
    return [sp for sp, count in zip(ours, counts, strict=True) if sp.events == count]


def choose_starting_savepoint(
    savepoints: Sequence[Savepoint],
    identity: StreamIdentity,
    bronze: BronzeVersion,
    at_most_us: int,
) -> StartingSavepoint:
    """Return the newest valid savepoint that is not after `at_most_us`, or the beginning.

    Raises SettingsError when the stream's states were mapped: they cannot be made from the beginning.
    """
    ours = [savepoint for savepoint in savepoints if savepoint.code == identity.code]
    best = newest_holding_all(ours, identity, bronze, at_most_us)
    if best is not None:
        return StartingSavepoint(best, best.until_us, best.events)
    if mapped_savepoint(identity.code):
        raise SettingsError(
            f"the states of {identity.stream} were mapped by migrate_state, and no valid savepoint of "
            "theirs is early enough: a rebuild from the beginning by today's code gives them up",
            code="mapped_state",
            subject=identity.stream,
            command=f"./stateful rebuild {identity.stream} --full-refresh --apply",
        )
    return StartingSavepoint(None, identity.since_us, 0)


def newest_holding_all(
    savepoints: Sequence[Savepoint],
    identity: StreamIdentity,
    bronze: BronzeVersion,
    at_most_us: int,
) -> Savepoint | None:
    """The savepoint of the latest instant, at most `at_most_us`, that holds all events before it."""
    early = [savepoint for savepoint in savepoints if savepoint.until_us <= at_most_us]
    found = sorted(_holding_all(early, identity, bronze), key=lambda sp: sp.until_us, reverse=True)
    return next((savepoint for savepoint in found if holds_rows_of(savepoint, bronze)), None)


def holds_rows_of(savepoint: Savepoint, bronze: BronzeVersion) -> bool:
    """True if bronze has the newest row of a savepoint; an older copy may lack it."""
    read_us = savepoint.bronze_ingested_at_us
    is_of_it = savepoint.bronze_id == bronze.table_id
    return is_of_it and (read_us is None or has_commit(bronze, read_us))


def retained_by(
    savepoints: Sequence[Savepoint], rules: SavepointRules, row: GenerationRow | None
) -> list[Savepoint]:
    """The savepoints that the rules retain, by instant, with the one that the generation began with."""
    if not savepoints:
        return []
    by_until = sorted(savepoints, key=lambda savepoint: savepoint.until_us)
    horizon_us = by_until[-1].until_us - rules.keep_for // MICROSECOND
    newest = [sp.savepoint_id for sp in by_until[-rules.keep :] if sp.until_us >= horizon_us]
    # Only Airflow knows the open backfills; their savepoints are the recent ones of restatements.
    late = max(savepoint.created_at for savepoint in savepoints) - rules.keep_restated
    return [
        savepoint
        for savepoint in by_until
        if savepoint.savepoint_id in (*newest, (row or GenerationRow())["seed_savepoint"])
        or (savepoint.kind == "restate" and savepoint.created_at >= late)
    ]
