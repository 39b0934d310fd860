"""The connector of a source: landed files here, a topic or others' table in a module of its own.

Also how many rows wait, how to go on behind a loss, and how to ingest a source from scratch.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import PurePosixPath

from pyarrow import fs

from include.catalogue import FINDINGS
from include.connectors import DeltaTable, KafkaTopic, Merged, StreamTable, refuse_own_table
from include.ingest.amendments import ERASURE, amendments_of
from include.ingest.base_connector import SourceConnector, SplitsConnector
from include.ingest.connector import (
    Batch,
    ConnectorError,
    Done,
    Lag,
    Loss,
    NextSplits,
    Outcome,
    ReadSplit,
    Split,
    one_commit,
    written_at,
)
from include.ingest.formats import LandedRows, open_rows
from include.ingest.ingest_log import Entry, Ingestion, read_done
from include.ingest.landed_values import UnreadableFileError
from include.ingest.parse_files import outcomes_of_content
from include.job import nothing_running
from include.lake.delta_log import is_there, move_aside
from include.lake.errors import OF_SOURCE, LakeError
from include.lake.ops import record_findings
from include.lake.paths import Lake
from include.registry import inputs_first, streams_of
from include.settings import Source
from include.text_table import counted


def connector_of(lake: Lake, source: Source) -> SourceConnector:
    """The connector by the settings of a source: a new kind is added here, and to `include.connectors`."""
    # Imported when needed: the client of a topic takes long to load.
    match source.connector:
        case None:
            return LandedFiles(lake, source)
        case KafkaTopic() as topic:
            from include.ingest.kafka import TopicConnector

            return TopicConnector(source, topic)
        case DeltaTable() as table:
            refuse_own_table(source.name, table.uri, lake.root)
            from include.ingest.delta_versions import TableConnector

            return TableConnector(source, table)
        case StreamTable() as parent:
            from include.ingest.stream_table import StreamTableConnector

            return StreamTableConnector(lake, source, parent.stream)
        case Merged():
            from include.ingest.merged import MergedConnector

            return MergedConnector(lake, source)


def place_of(source: Source) -> str:
    """The place, for people, of rows before they are ingested."""
    return f"landing/{source.name}" if source.connector is None else source.connector.place


def waiting(lake: Lake, source: Source) -> int:
    """The number of files, or offsets, that no batch has; 0 when there is nothing to ingest."""
    return connector_of(lake, source).lag(read_done(lake, source.name)).waiting


def lag_of_run(lake: Lake, source: Source, done: Done | None = None) -> Lag:
    """The lag of the next run, of inputs, too; a run that would fail has something to say, too."""
    try:
        lags = [
            connector_of(lake, s).lag(read_done(lake, s.name)) for s in inputs_first(source)[:-1]
        ]
        lags.append(connector_of(lake, source).lag(done or read_done(lake, source.name)))
    except ConnectorError:
        return Lag(1, is_little=True)
    waiting, is_little = sum(lag.waiting for lag in lags), all(lag.is_little for lag in lags)
    return Lag(waiting, is_little, lags[-1].held)


@dataclass(frozen=True)
class LandedFiles(SplitsConnector):
    """The connector of files in landing."""

    lake: Lake
    source: Source

    @cached_property
    def files(self) -> list[Split]:
        return landed_files(self.lake, self.source.name)

    def next_splits(self, done: Done) -> NextSplits:
        return NextSplits(sorted(one_commit(self._waiting(done), self.source)))

    def lag(self, done: Done) -> Lag:
        sizes = [file.bytes for file in self._waiting(done)]
        return Lag(len(sizes), sum(sizes) <= self.source.spark_bytes)

    def loss(self, done: Done) -> Loss | None:
        raise ConnectorError(
            f"{place_of(self.source)} loses nothing: a landed file is ingested whole, or not at all",
            code="wrong_argument",
            subject=self.source.name,
        )

    def reader(self, batch: Batch) -> ReadSplit:
        root = landing_root(self.lake, self.source.name)
        return partial(outcomes_of_file, self.lake, root, self.source, batch)

    def _waiting(self, done: Done) -> list[Split]:
        return [file for file in self.files if file.name not in done.names]


def outcomes_of_file(
    lake: Lake, root: str, source: Source, batch: Batch, split: Split
) -> Iterator[Outcome]:
    """Yield an outcome for each row of a file, and last one for the file."""
    name = split.source_file

    def opened() -> LandedRows:
        return open_rows(name, read_landed(lake, root, name, source.max_file_bytes), source)

    yield from outcomes_of_content(opened, source, name, batch.ingested_at_us)


Listed = tuple[int, str, int]  # when a file was modified, in nanoseconds; its name; its bytes


def landing_root(lake: Lake, source: str) -> str:
    """The landing folder as the lake's file system spells it, absolute."""
    root = lake.path_in_filesystem(lake.landing(source))
    return os.path.abspath(root) if lake.is_local else root  # noqa: PTH100 (no symlinks)


def landed_files(lake: Lake, source: str) -> list[Split]:
    """All landed files but hidden ones, in the order of ingestion: the older before the newer."""
    root = landing_root(lake, source)
    found = sorted(_listed_here(root) if lake.is_local else _listed(lake, root))
    return [Split(name, bytes=size, modified_at=written_at(ns // 1000)) for ns, name, size in found]


def _listed(lake: Lake, root: str) -> Iterator[Listed]:
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    for info in lake.filesystem.get_file_info(selector):
        name = info.path.removeprefix(f"{root}/")
        if info.type == fs.FileType.File and not any(map(_is_hidden, PurePosixPath(name).parts)):
            yield info.mtime_ns or 0, name, info.size


def _listed_here(root: str) -> Iterator[Listed]:
    for folder, folders, names in os.walk(root, onerror=_refuse_unlisted):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        prefix = f"{folder}/".removeprefix(f"{root}/")
        links = (name for name in folders if os.path.islink(f"{folder}/{name}"))  # noqa: PTH114 (as all here)
        for name in (*names, *links):
            if _is_hidden(name):
                continue
            try:
                found = os.lstat(f"{folder}/{name}")
            except FileNotFoundError:
                continue  # removed meanwhile
            yield found.st_mtime_ns, _storable(prefix + name), found.st_size


def _refuse_unlisted(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # removed meanwhile, or nothing has ever landed
        raise error


def _storable(name: str) -> str:
    """The name; one not in UTF-8 with \\x.. for other bytes, and `/`, which no file has there."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"{os.fsencode(name).decode('utf-8', 'backslashreplace')}/"
    return name


def _is_hidden(name: str) -> bool:
    # The rule of Hadoop's listing, with its exceptions.
    if name.startswith(("_common_metadata", "_metadata")):
        return False
    under_score = name.startswith("_") and "=" not in name
    return under_score or name.startswith(".") or name.endswith("._COPYING_")


def read_landed(lake: Lake, root: str, name: str, max_bytes: int) -> bytes:
    """The content of a landed file; UnreadableFileError for one to refuse, ConnectorError for one gone."""
    if name.endswith("/"):
        raise UnreadableFileError("its name is not UTF-8 (\\x.. is each byte that is not)")
    path = f"{root}/{name}"
    try:
        if lake.is_local and not stat.S_ISREG(os.lstat(path).st_mode):
            raise UnreadableFileError("it is a link, a pipe or the like: land the file itself")
        with lake.filesystem.open_input_file(path) as file:
            size = file.size()
            if size > max_bytes:
                said = f"{size} bytes, more than the {max_bytes} allowed: split it"
                raise UnreadableFileError(said)
            content = bytes(file.read(size))
        if lake.is_local and os.stat(path).st_size != size:  # noqa: PTH116 (a text, as all here)
            said = "written to while it was read: name it _... until it is whole"
            raise UnreadableFileError(said)
    except PermissionError as error:
        raise UnreadableFileError(f"permission denied: {error.strerror}") from None
    except FileNotFoundError as error:
        said = f"{path} was removed while it was to be ingested, and nothing was: run again"
        raise ConnectorError(said, subject=name) from error
    return content


def plan_loss(lake: Lake, source: Source) -> Loss | None:
    """The loss that `accept_loss` would go on behind; None when nothing is lost."""
    return connector_of(lake, source).loss(read_done(lake, source.name))


def accept_loss(lake: Lake, source: Source, loss: Loss) -> None:
    """Go on behind what is lost, by a batch of no rows; the finding `rows_skipped` keeps it."""
    ingestion = Ingestion(lake, source)
    said = f"{loss.what}. `./stateful ingest {source.name} --accept-loss` has gone on behind them"
    found = FINDINGS["rows_skipped"].found(source.name, said, count=loss.lost)
    # First: once it is committed, nothing is lost any more.
    record_findings(lake, None, source.name, [found])
    ingestion.again(lambda: ingestion.commit(Entry(splits=loss.splits)))


# Bronze, quarantine and the ingest log of a source are moved aside together: none is of use alone.
def plan_from_scratch(lake: Lake, source: Source) -> str:
    """The plan for people: what is moved, and what follows; raises LakeError while a key is erased."""
    _refuse_erasing(lake, source.name)
    return "\n".join(_moves(lake, source))


def move_source_aside(lake: Lake, source: Source) -> None:
    """Move its tables aside, or what an interrupted move has left, once no job of it runs."""
    with nothing_running(lake, [source.name], streams_of(source.name)):
        _refuse_erasing(lake, source.name)
        move_aside(lake, [f"{folder}/{source.name}" for folder in OF_SOURCE])


def _refuse_erasing(lake: Lake, source: str) -> None:
    try:
        amendment = amendments_of(lake, source).open
    except LakeError:
        return  # of an ingest log that cannot be read nothing is left to go on with
    if amendment is not None and amendment.kind == ERASURE:
        raise amendment.unfinished("ingestion from scratch")


def _moves(lake: Lake, source: Source) -> Iterator[str]:
    tables = (f"{folder}/{source.name}" for folder in OF_SOURCE)
    named = ", ".join(name for name in tables if is_there(lake, f"{lake.root}/{name}")) or "nothing"
    yield f"moves {named} into set_aside/, and ingests all of {place_of(source)} again"
    yield _not_again(lake, source)
    yield "rows that were corrected and ingested by reingest have to be so again"
    for stream in streams_of(source.name):
        # By what is there: what is recorded of it may be what is damaged.
        folders = (f"{lake.root}/{kind}/{stream.name}" for kind in ("checkpoints", "tables"))
        if any(is_there(lake, folder) for folder in folders):
            yield f"{stream.name} stops until it is rebuilt: `./stateful rebuild {stream.name} --apply`"


def _not_again(lake: Lake, source: Source) -> str:
    """The rows, for people, that were ingested and cannot be read again."""
    if source.connector is not None:
        return f"rows that {place_of(source)} no longer has do not come again"
    try:
        done = read_done(lake, source.name)
    except LakeError:
        return "rows of files that are no longer in landing do not come again"
    gone = len(done.names - {file.name for file in landed_files(lake, source.name)})
    if not gone:
        return "all ingested files are still in landing"
    return f"{counted(gone, 'file')} of those ingested are not in landing any more: DATA IS LOST"
