"""The versions of somebody else's Delta table: which were taken, which come next, which are passed over.

What the table had at first is taken as if its version then had added it.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable as OpenTable
from pyarrow import fs

from include.lake.delta_log import changes_data, commit_info
from include.lake.findings import Finding
from include.lake.paths import files_of
from include.landing import connector
from include.landing.batch import Batch, Position
from include.landing.connector import Cut, GoesOn, OriginError, ReadPart, come_meanwhile
from include.landing.delta_commits import (
    MAPPING,
    Actions,
    LostCommitError,
    actions_of,
    added_files,
    bodies,
    has_values,
    is_mapped_at,
    is_whole,
    log_file,
    maps_columns,
    open_table,
    outcomes_of_added,
    table_at,
)
from include.landing.delta_parts import BEGINS, COMMIT, PASSED_OVER, VersionPart, part_named
from include.origins import DeltaTable
from include.settings import Source
from include.text_table import counted


def end_of(uri: str, version: int, actions: Actions | None = None) -> VersionPart:
    """What says that a version is taken; without `actions` its commit is read, where it can be."""
    try:
        told = json.dumps(actions or actions_of(uri, version), sort_keys=True)
    except LostCommitError:
        return VersionPart(version, "")
    return VersionPart(version, f"{COMMIT}{hashlib.sha256(told.encode()).hexdigest()[:32]}")


def is_another(uri: str, end: VersionPart) -> bool:
    """Whether the table has another version of that number now; False where nothing tells."""
    return bool(end.mark) and end_of(uri, end.version).mark not in (None, end.mark)


def newest_same(uri: str, ends: Iterable[VersionPart], newest: int) -> VersionPart | None:
    """The newest of the versions that were taken which the table still has; None: none is known."""
    marked = sorted((end for end in {*ends} if end.mark and end.version <= newest), reverse=True)
    return next((end for end in marked if end == end_of(uri, end.version)), None)


@dataclass(frozen=True)
class Taken:
    """Parts of its versions, by batch."""

    position: Position
    table_id: str

    @cached_property
    def parts(self) -> list[tuple[int, VersionPart]]:
        """Each with its batch."""
        ours = (part for part in self.position.parts if part.origin_id == self.table_id)
        return [(part.batch, part_named(part.name)) for part in ours]

    @cached_property
    def ends(self) -> list[VersionPart]:
        """The versions until which all was taken."""
        return [part for _, part in self.parts if part.is_end]

    @property
    def complete(self) -> int:
        """The version until which all is taken, by the newest batch that says so; -1 before the first."""
        return self.ends[-1].version if self.ends else -1

    @property
    def begun(self) -> int | None:
        """The version whose files, all that the table had, are taken first; None before the first is."""
        return next((part.version for _, part in self.parts if part.is_file), None)

    def behind(self) -> list[VersionPart]:
        """What is taken of versions behind the complete ones. Before an older copy of the table was gone
        on with, versions of the same numbers may have been others: of these only files are known again."""
        since = max((batch for batch, part in self.parts if part.is_end), default=0)
        return [
            part
            for batch, part in self.parts
            if batch >= since or (part.is_file and part.version > self.complete)
        ]


# A path that does not lie below the table.
OF_ANOTHER_TABLE = re.compile(r"/|[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


@dataclass(frozen=True)
class TableConnector:
    """The connector of a table of others, up to the version that was its newest."""

    source: Source
    origin: DeltaTable

    @cached_property
    def table(self) -> OpenTable:
        table = open_table(self.origin.uri)
        if maps_columns(table.metadata().configuration):
            raise OriginError(
                f"the Delta table {self.origin.uri} maps its columns to other names in its files "
                f"({MAPPING}): that is not read",
                code="unreadable_input",
                subject=MAPPING,
            )
        return table

    @cached_property
    def id(self) -> str:
        """What it was given when it was made."""
        return str(self.table.metadata().id)

    @cached_property
    def newest(self) -> int:
        return int(self.table.version())

    def cut(self, done: Position) -> Cut:
        if lost := self.lost(done):
            raise OriginError(
                f"{lost}. Nothing is ingested. To go on behind what is lost",
                subject=self.source.name,
                command=f"./stateful ingest {self.source.name} --accept-loss --apply",
            )
        # Of the table that this began with: of one put in its place meanwhile a version is another.
        if TableConnector(self.source, self.origin).id != self.id:
            raise OriginError(
                f"the Delta table {self.origin.uri} was made anew meanwhile: run again",
                code="unreadable_input",
                subject=self.source.name,
            )
        sizes: dict[str, int] = {}
        size, end = 0, None
        for version, files, actions in self._waiting(done):
            for path, size_bytes in files.items():
                size += size_bytes
                if sizes and (
                    size > self.source.commit_bytes or len(sizes) >= connector.FILES_A_BATCH
                ):
                    return self._cut(sizes, end)
                sizes[f"{version}/{path}"] = size_bytes
            end = (version, actions)
        return self._cut(sizes, end)

    def _cut(self, sizes: Mapping[str, int], end: tuple[int, Actions | None] | None) -> Cut:
        ends = {} if end is None else {end_of(self.origin.uri, *end).name: 0}
        return Cut(dict(sorted({**sizes, **ends}.items())), self.id)

    def waiting(self, done: Position) -> int:
        """The files that no batch has, and 1 for what else a run has to do."""
        if self.lost(done):
            return 1
        return sum(max(len(files), 1) for _, files, _ in self._waiting(done))

    def is_little(self, done: Position) -> bool:
        if self.lost(done):
            return True
        waiting = sum(sum(files.values()) for _, files, _ in self._waiting(done))
        return waiting <= self.source.spark_bytes

    def why_behind(self, done: Position) -> str | None:
        return come_meanwhile(self.waiting(done), "file", self.origin.place)

    def reader(self, batch: Batch) -> ReadPart:
        return partial(outcomes_of_added, self.source, batch)

    def passed_over(self, batch: Batch) -> list[Finding]:
        """One finding on the versions that a batch passes over; none without any."""
        parts = sorted(map(part_named, batch.files))
        versions = [part.version for part in parts if part.path == PASSED_OVER]
        if not versions:
            return []
        named = ", ".join(map(str, versions))
        return [
            Finding(
                finding="versions_ignored",
                severity="warning",
                count=len(versions),
                detail=f"versions {named} of {self.origin.uri} delete, update or restore rows, and were "
                f"passed over (on_change of the source): bronze/{self.source.name} has the rows as they "
                "were before, and none that these versions add, be it a new one",
                action="if the change matters, take the table in anew under another source",
            )
        ]

    def lost(self, position: Position) -> str | None:
        """Why what comes next cannot be taken; None when it can."""
        if position.parts and position.parts[-1].origin_id != self.id:
            return f"the Delta table {self.origin.uri} was made anew since"
        taken = self._taken(position)
        first, begun = taken.complete + 1, taken.begun
        if not first and begun is not None and not self._opens(begun):
            return (
                f"version {begun} of {self.origin.uri}, with whose files it was begun, was cleaned up "
                "before all of them were taken, or its commit damaged"
            )
        if first > self.newest + 1:
            return (
                f"{self.origin.uri} was taken until version {first - 1}, but ends at {self.newest}: it is "
                "an older copy, or was one"
            )
        if taken.ends and is_another(self.origin.uri, taken.ends[-1]):
            return (
                f"version {first - 1} of {self.origin.uri}, until which it was taken, is another one now: it "
                "was put back from an older copy, and has grown since"
            )
        if first and first <= self.newest and not self._opens(first):
            return (
                f"versions {first} to {self._earliest(first) - 1} of {self.origin.uri} were cleaned up, or "
                f"their commits damaged ({log_file(first)}), before they were taken"
            )
        return None

    def goes_on(self, done: Position) -> GoesOn | None:
        lost = self.lost(done)
        if lost is None:
            return self._behind_files(tuple(self._gone(self.cut(done))))
        if done.parts[-1].origin_id != self.id:
            return GoesOn(lost, 0, (BEGINS,), self.id)
        taken = self._taken(done)
        first = taken.complete + 1 or taken.begun or 0
        is_copy = bool(taken.ends) and is_another(self.origin.uri, taken.ends[-1])
        if first > self.newest or is_copy:
            same = newest_same(self.origin.uri, taken.ends, self.newest)
            end = same or end_of(self.origin.uri, self.newest)
            return GoesOn(lost, 0, (end.name,), self.id)
        until = self._earliest(first)
        names = (end_of(self.origin.uri, until - 1).name,)
        return GoesOn(lost, until - first, names, self.id)

    def _behind_files(self, gone: tuple[str, ...]) -> GoesOn | None:
        if not gone:
            return None
        lost = f"{self.origin.uri} has lost {counted(len(gone), 'file')} ({', '.join(gone)})"
        return GoesOn(lost, len(gone), gone, self.id)

    def _gone(self, cut: Cut) -> Iterator[str]:
        """The files of a batch that cannot be read any more: they, or what the log had of them, are gone."""
        parts = [part for part in map(part_named, cut.sizes) if part.is_file]
        infos = files_of(self.origin.uri).get_file_info([part.path for part in parts])
        for part, info in zip(parts, infos, strict=True):
            if info.type == fs.FileType.NotFound or not has_values(self.origin.uri, part):
                yield part.name

    def _taken(self, position: Position) -> Taken:
        return Taken(position, self.id)

    def _waiting(self, position: Position) -> Iterator[tuple[int, dict[str, int], Actions | None]]:
        """Versions that are not all taken, of each the files that are not, and its commit where it is read."""
        known = self._taken(position)
        taken, complete = known.behind(), known.complete
        if complete < 0:
            complete = self.newest if known.begun is None else known.begun
            yield complete, self._untaken(complete, self._backlog(complete), taken), None
        for version, actions, is_mapped in self._commits(complete + 1):
            files = self._appended(version, actions)
            if is_mapped and any(VersionPart(version, path).is_file for path in files):
                raise OriginError(
                    f"version {version} of {self.origin.uri} was written while its columns had other names in "
                    f"its files ({MAPPING}), which is not read. They have none now: another source can take "
                    "in the table as it is",
                    code="unreadable_input",
                    subject=MAPPING,
                )
            yield version, self._untaken(version, files, taken), actions

    def _commits(self, first: int) -> Iterator[tuple[int, Actions, bool]]:
        """Of all versions up to one that is lost, which `lost` tells of once it comes next; and whether
        columns are mapped in it."""
        is_mapped = None
        for version in range(first, self.newest + 1):
            try:
                actions = actions_of(self.origin.uri, version)
            except LostCommitError:
                return
            is_mapped = is_mapped_at(self.origin.uri, version, actions, is_mapped)
            yield version, actions, is_mapped

    def _untaken(
        self, version: int, files: dict[str, int], taken: Sequence[VersionPart]
    ) -> dict[str, int]:
        known = {part.path for part in taken if part.version == version}
        if elsewhere := next((path for path in files if OF_ANOTHER_TABLE.match(path)), None):
            raise OriginError(
                f"{self.origin.uri} is a shallow clone: {elsewhere} is another table's file, and goes when "
                "that one is vacuumed. Let the source read the other table, or a deep clone of it",
                code="unreadable_input",
                subject=elsewhere,
            )
        return {path: size for path, size in files.items() if path not in known}

    def _backlog(self, version: int) -> dict[str, int]:
        table = self.table if version == self.newest else open_table(self.origin.uri, version)
        if pa.table(table.deletion_vectors()).num_rows:
            raise OriginError(
                f"files of {self.origin.uri} have deletion vectors: rows in them are deleted, which is "
                "not read. Let its owner purge them (REORG TABLE ... APPLY (PURGE)), and run again",
                code="unreadable_input",
                subject="deletion vectors",
            )
        files = added_files(table)
        # The older first, as of landed files: what is new makes older rows late.
        by_age = sorted(files, key=lambda path: (files[path]["modification_time"], path))
        return {path: files[path]["size_bytes"] for path in by_age}

    def _appended(self, version: int, actions: Actions) -> dict[str, int]:
        if is_restore(actions) or any(map(_takes_away, actions)):
            if self.origin.on_change == "ignore":
                return {PASSED_OVER: 0}
            what = commit_info(actions).get("operation", "a commit")
            does = "restores" if is_restore(actions) else "deletes or updates"
            raise OriginError(
                f"version {version} of {self.origin.uri} {does} rows ({what}), which an "
                'append-only bronze cannot follow: on_change="ignore" of the origin passes such '
                "versions over, and names each in a finding",
                code="changed_input",
                subject="on_change",
            )
        adds = (action["add"] for action in actions if "add" in action)
        return {unquote(add["path"]): add["size"] for add in adds if add.get("dataChange", True)}

    def _opens(self, version: int) -> bool:
        """Whether the log still has the commit, and what came before it, as files or in a checkpoint.

        OriginError where a machine fails.
        """
        uri = self.origin.uri
        return is_whole(uri, version) and (
            version == self.newest or table_at(uri, version) is not None
        )

    def _earliest(self, lost: int) -> int:
        """The version from which on all commits can be read, behind one that cannot."""
        version = self.newest + 1
        while version > lost + 1 and is_whole(self.origin.uri, version - 1):
            version -= 1
        while version < self.newest and not self._opens(version):
            version += 1
        return version


def is_restore(actions: Actions) -> bool:
    """Whether a version takes files back that the table had before: no row of them is a new one."""
    infos = bodies(actions, "commitInfo")
    is_named = any(info.get("operation") == "RESTORE" for info in infos)
    return is_named and changes_data(actions)


def _takes_away(action: Mapping[str, Any]) -> bool:
    """Whether rows were there before and are not now; a deletion vector says so of a file's rows.

    Files of changes (`cdc`) say nothing of that: a MERGE that only inserts has them, too.
    """
    if action.get("add", {}).get("deletionVector"):
        return True
    return "remove" in action and changes_data([action])
