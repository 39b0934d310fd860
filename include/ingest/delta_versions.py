"""The connector of others' Delta table: its versions are ingested one after the other."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable as OpenTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from include.catalogue import FINDINGS
from include.connectors import DeltaTable
from include.ingest.formats import ParquetRows
from include.ingest.landed_values import UnreadableFileError
from include.ingest.parse_files import outcomes_of_content
from include.ingest.source_connector import SplitsConnector
from include.ingest.splits import (
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
from include.lake.delta_log import (
    actions_in,
    changes_data,
    commit_info,
    delta_table,
    first_line,
    is_of_machine,
)
from include.lake.ops import Finding
from include.lake.paths import files_of
from include.settings import Source
from include.text_table import counted

Actions = Sequence[Mapping[str, Any]]


def open_table(uri: str, version: int | None = None) -> OpenTable:
    """The table, as of a version; raises ConnectorError when it cannot be read."""
    try:
        return delta_table(uri, version=version)
    except (DeltaError, OSError) as error:
        at = "" if version is None else f" as of version {version}"
        said = f"the Delta table {uri}{at} cannot be read: {first_line(error)}"
        raise ConnectorError.unreadable(uri, said) from error


def table_at(uri: str, version: int) -> OpenTable | None:
    """The table, as of a version; None where its log lacks that, ConnectorError where a machine fails."""
    try:
        return open_table(uri, version)
    except ConnectorError as error:
        why = error.__cause__
        if why is None or isinstance(why, OSError) or is_of_machine(why):
            raise
        return None


def added_files(table: OpenTable) -> dict[str, dict[str, Any]]:
    """The files of a version of the table by path, with their bytes and partition values."""
    actions = pa.table(table.get_add_actions(flatten=False))
    return {unquote(row["path"]): row for row in actions.to_pylist()}


def actions_of(uri: str, version: int) -> list[dict[str, Any]]:
    """The actions of the commit of a version; none where it was cleaned up, or is not whole.

    Behind a checkpoint nobody else reads it: a damaged one would lose its rows without a word.
    """
    try:
        with files_of(uri).open_input_stream(f"_delta_log/{version:020}.json") as file:
            actions = actions_in(bytes(file.read()))
    except (FileNotFoundError, ValueError):
        return []
    return actions if all(isinstance(action, dict) for action in actions) else []


@lru_cache(maxsize=64)
def known_at(uri: str, version: int) -> tuple[pa.Schema, list[str], dict[str, dict[str, Any]]]:
    """The columns, partition columns and, if there are some, files of a version, or else of the newest."""
    table = table_at(uri, version) or open_table(uri)
    by = table.metadata().partition_columns
    return pa.schema(table.schema().to_arrow()), by, added_files(table) if by else {}


def has_values(uri: str, split: Split) -> bool:
    """True if the log still has the partition that a file is of."""
    _, by, files = known_at(uri, split.first)
    return not by or split.name in files


def outcomes_of_added(source: Source, uri: str, batch: Batch, split: Split) -> Iterator[Outcome]:
    """Yield an outcome for each row of a file, and last the file's; ConnectorError when it is gone."""

    def opened() -> ParquetRows:
        gone = f"{split.name}, of version {split.first}, was to be ingested and is "
        try:
            with files_of(uri).open_input_file(split.name) as file:
                if file.size() > source.max_file_bytes:
                    said = f"{file.size()} bytes, more than max_file_bytes of {source.name} allows"
                    raise UnreadableFileError(said)
                content = bytes(file.read())
        except FileNotFoundError as error:
            raise ConnectorError.lost(source.name, f"{gone}gone, as after a VACUUM") from error
        if not has_values(uri, split):
            raise ConnectorError.lost(source.name, f"{gone}of a partition that its log has lost")
        schema, by, files = known_at(uri, split.first)
        known = files[str(split.name)]["partition"] if by else {}
        return ParquetRows(content, source, schema, {name: known[name] for name in by})

    yield from outcomes_of_content(opened, source, split.source_file, batch.ingested_at_us)


class DoneVersions(NamedTuple):
    """The versions and files of a table that batches have."""

    complete: int  # the version until which all are done; -1 before the first
    begun: int | None  # the version whose files, all that the table had then, come first
    files: set[tuple[int, str | None]]  # version and path of done files of later versions

    @property
    def next(self) -> int | None:
        """The version that comes next; None before the first batch."""
        return self.complete + 1 or self.begun


def done_versions(done: Done, table_id: str) -> DoneVersions:
    """The versions and files that batches have of the table with this id."""
    splits = [split for _, split in done.splits if split.origin_id == table_id]
    ends = [split.until - 1 for split in splits if split.name is None]
    complete = ends[-1] if ends else -1
    files = [(split.first, split.name) for split in splits if split.name is not None]
    begun = files[0][0] if files else None
    return DoneVersions(complete, begun, {each for each in files if each[0] > complete})


MAPPING = "delta.columnMapping.mode"
# A path that does not lie below the table.
OF_ANOTHER_TABLE = re.compile(r"/|[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


@dataclass(frozen=True)
class TableConnector(SplitsConnector):
    """The connector of a table of others, up to the version that is its newest at first."""

    source: Source
    connector: DeltaTable

    @cached_property
    def table(self) -> OpenTable:
        table = open_table(self.connector.uri)
        if table.metadata().configuration.get(MAPPING, "none") != "none":
            said = f"the Delta table {self.connector.uri} has {MAPPING}, which is not read"
            raise ConnectorError.unreadable(MAPPING, said)
        return table

    @cached_property
    def id(self) -> str:
        """The id that the table got when it was made."""
        return str(self.table.metadata().id)

    @cached_property
    def newest(self) -> int:
        return int(self.table.version())

    def next_splits(self, done: Done) -> NextSplits:
        if lost := self._why_lost(done):
            raise ConnectorError.lost(self.source.name, lost)
        # A table that was put in its place meanwhile has other versions.
        if TableConnector(self.source, self.connector).id != self.id:
            said = f"the Delta table {self.connector.uri} was replaced meanwhile: run again"
            raise ConnectorError.unreadable(self.source.name, said)
        ignored: list[int] = []
        following = one_commit(self._waiting(done, ignored), self.source)
        ends = [split for split in following if split.name is None]
        splits = [split for split in following if split.name is not None]
        if ends:
            splits.append(self._end(ends[0].first, ends[-1].until - 1))
        found = self._ignored([v for v in ignored if ends and v < ends[-1].until])
        return NextSplits(splits, found)

    def _end(self, first: int, version: int) -> Split:
        return Split(None, None, first, version + 1, self.id)

    def lag(self, done: Done) -> Lag:
        """The files that no batch has; 1 for what else a run has to do."""
        if self._why_lost(done):
            return Lag(1, is_little=True)
        splits = list(self._waiting(done, []))
        files = [split.bytes for split in splits if split.name is not None]
        return Lag(len(files) or min(len(splits), 1), sum(files) <= self.source.spark_bytes)

    def reader(self, batch: Batch) -> ReadSplit:
        return partial(outcomes_of_added, self.source, self.connector.uri, batch)

    def _ignored(self, versions: Sequence[int]) -> list[Finding]:
        said = (
            f"versions {', '.join(map(str, versions))} of {self.connector.uri} delete, update or restore rows, "
            f"and were ignored: bronze/{self.source.name} has the rows as before, and none that they add"
        )
        found = FINDINGS["versions_ignored"].found
        return [found(self.source.name, said, count=len(versions))] if versions else []

    def _why_lost(self, done: Done) -> str | None:
        """The reason why the next version cannot be read; None when it can."""
        if done.splits and done.origin_id != self.id:
            return f"the Delta table {self.connector.uri} was replaced since"
        known = done_versions(done, self.id)
        if known.next is None or known.complete == self.newest or self._opens(known.next):
            return None
        was = "was cleaned up, is damaged, or never came to be"
        return f"version {known.next} of {self.connector.uri}, which comes next, {was}"

    def loss(self, done: Done) -> Loss | None:
        lost = self._why_lost(done)
        if lost is None:
            gone = list(self._gone(self.next_splits(done)))
            said = f"{self.connector.uri} has lost {counted(len(gone), 'file')}"
            return Loss(said, len(gone), gone) if gone else None
        if done.origin_id != self.id:  # all that it has
            return Loss(lost, 0, [Split(None, None, 0, 0, self.id)])
        first = done_versions(done, self.id).next or 0
        if first > self.newest:
            return Loss(lost, 0, [self._end(self.newest, self.newest)])
        until = self._earliest(first)
        return Loss(lost, until - first, [self._end(first, until - 1)])

    def _gone(self, following: NextSplits) -> Iterator[Split]:
        """The files of the next batch that are gone, or of which the log has lost the partitions."""
        splits = [split for split in following.splits if split.name is not None]
        infos = files_of(self.connector.uri).get_file_info([split.name for split in splits])
        for split, info in zip(splits, infos, strict=True):
            if info.type == fs.FileType.NotFound or not has_values(self.connector.uri, split):
                yield split

    def _waiting(self, done: Done, ignored: list[int]) -> Iterator[Split]:
        """Yield files that no batch has, and behind those of a version its end; fill `ignored`.

        Files that the table had at first count as added by its version then.
        """
        complete, begun, files_done = done_versions(done, self.id)
        first = complete + 1
        if complete < 0:
            first = self.newest if begun is None else begun
        for version in range(first, self.newest + 1):
            if complete < 0 and version == first:
                files = self._backlog(version)
            elif not (actions := actions_of(self.connector.uri, version)):
                return  # an error once it comes next
            elif self._is_ignored(version, actions):
                files = []
                ignored.append(version)
            else:
                files = self._appended(version, actions)
            yield from (file for file in files if (file.first, file.name) not in files_done)
            yield self._end(version, version)

    def _file(self, version: int, path: str, size: int, written_ms: int) -> Split:
        if OF_ANOTHER_TABLE.match(path):
            said = f"{self.connector.uri} is a shallow clone: {path} is of another table: read that"
            raise ConnectorError.unreadable(path, said)
        at = written_at(written_ms * 1000)
        return Split(path, None, version, version + 1, self.id, bytes=size, modified_at=at)

    def _backlog(self, version: int) -> list[Split]:
        table = self.table if version == self.newest else open_table(self.connector.uri, version)
        if pa.table(table.deletion_vectors()).num_rows:
            said = f"files of {self.connector.uri} have deletion vectors, which are not read"
            mend = "let its owner purge them (REORG TABLE ... APPLY (PURGE))"
            raise ConnectorError.unreadable("deletion vectors", f"{said}: {mend}")
        files = added_files(table)
        # The older first, as of landed files: what is new makes older rows late.
        found = [(of["modification_time"], path, of["size_bytes"]) for path, of in files.items()]
        return [self._file(version, path, size, at) for at, path, size in sorted(found)]

    def _is_ignored(self, version: int, actions: Actions) -> bool:
        """True if the version does not only append; raises ConnectorError where it may not be ignored."""
        what = commit_info(actions).get("operation", "a commit")
        # A RESTORE brings back files that the table had before: no row of them is new.
        is_restore = what == "RESTORE" and changes_data(actions)
        if not is_restore and not any(map(_takes_away, actions)):
            return False
        if self.connector.on_change != "ignore":
            raise ConnectorError(
                f"version {version} of {self.connector.uri} does not only append ({what}), which bronze "
                'cannot follow: on_change="ignore" of the connector ignores such versions',
                code="changed_input",
                subject="on_change",
            )
        return True

    def _appended(self, version: int, actions: Actions) -> list[Split]:
        return [
            self._file(version, unquote(add["path"]), add["size"], add["modificationTime"])
            for add in (action["add"] for action in actions if "add" in action)
            if add.get("dataChange", True)
        ]

    def _opens(self, version: int) -> bool:
        """True if the log has the commit, and what came before, as files or in a checkpoint."""
        if not actions_of(self.connector.uri, version):
            return False
        return version == self.newest or table_at(self.connector.uri, version) is not None

    def _earliest(self, lost: int) -> int:
        """The version behind `lost` from which on all commits can be read."""
        version = self.newest + 1
        while version > lost + 1 and actions_of(self.connector.uri, version - 1):
            version -= 1
        while version < self.newest and not self._opens(version):
            version += 1
        return version


def _takes_away(action: Mapping[str, Any]) -> bool:
    """True if rows that were there are there no more, as after a deletion vector of a file's rows.

    Files of changes (`cdc`) do not tell: a MERGE that only inserts has them, too.
    """
    is_removed = "remove" in action and changes_data([action])
    return is_removed or bool(action.get("add", {}).get("deletionVector"))
