"""The ingest log, `ingest_log/<source>`: what was ingested, batch by batch, and the files of its rows.

The rows of a batch are written first, as files that no table has yet. One commit to the log, as
exactly the next version, decides: the batch is done, with these files. Then a commit each adds them
to the tables; what a run that dies behind the log's commit has left undone, the next one replays
(`finish`). So nothing is read twice from a source. The log has the source watermark, too.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableMerger

from include.fold.admission import instant_of, micros_of
from include.ingest.bronze_tables import KEEPS_LOG, create_tables
from include.ingest.splits import SPLIT_COLUMNS, Done, Split
from include.ingest.watermark import SourceWatermark, logged_groups, watermark_instants
from include.lake.columns import documented, listed, without_comments
from include.lake.delta_log import LogFiles, create_if_absent, files_of_log, open_table, unbroken
from include.lake.errors import LakeError, settings_changed
from include.lake.ops import Result, compact_now_and_then, despite_others
from include.lake.paths import Lake, files_of
from include.lake.table import Record, Staged, Table, found_file, of_other_times, stage
from include.settings import Source

BRONZE, QUARANTINE = "bronze", "quarantine"
CHANGES = "_changes"  # a folder within quarantine's, of rows that are merged into it
# Of a row of the log.
BATCH, SPLIT, FILE = "batch", "split", "file"
KEEPALIVE = "keepalive"  # in a batch's note: its heartbeat moves nothing
COLUMNS = listed("""
batch bigint Its number, from 0; all its rows here are of one commit
kind string batch: itself; split: what it was read from; file: what has its rows
split string A file, below landing/<source> or the table it is of; a topic
partition int Of a topic
first bigint The first offset or version; of an input when its newest rows were ingested
until bigint The offset, version or event time behind the last
origin_id string The id of the topic or table that it was read from
bytes bigint Of a split, about
modified_at timestamp Of a split that is a file
table string bronze or quarantine: the table that the file belongs to
path string The file, below that table's folder
size bigint Bytes of the file
rows bigint Its rows
ingested_at timestamp Of its events
watermark_before timestamp Of bronze; null before the first event
watermark_after timestamp With its events; null of a batch without any
groups string JSON: the groups of a source with watermark_per, after it
commit_id string Of a batch: in the records of the commits that add its files
note string JSON: what else it is, such as a step of set-watermark or of an erasure
""")
SCHEMA = without_comments(documented(COLUMNS))
COMMENT = "What was ingested, batch by batch, and the files that its rows are in"


@dataclass(frozen=True)
class Entry:
    """A batch to log; its watermarks count only with files of bronze."""

    before: SourceWatermark = field(default_factory=SourceWatermark)
    after: SourceWatermark = field(default_factory=SourceWatermark)
    files: Mapping[str, Sequence[Staged]] = field(default_factory=dict)  # by table
    splits: Sequence[Split] = ()
    note: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, number: int) -> pa.Table:
        """The batch as rows of the log, under its number."""
        note = json.dumps(dict(self.note)) if self.note else None
        own = {"kind": BATCH, "commit_id": uuid.uuid4().hex, "note": note}
        rows: list[dict[str, Any]] = [own | self._watermarks()]
        rows += [{"kind": SPLIT, **dict(zip(SPLIT_COLUMNS, of, strict=True))} for of in self.splits]
        for table, files in self.files.items():
            of_file = {"kind": FILE, "table": table}
            rows += [of_file | {"path": f.path, "size": f.size, "rows": f.rows} for f in files]
        return pa.Table.from_pylist([{"batch": number} | row for row in rows], SCHEMA)

    def _watermarks(self) -> dict[str, Any]:
        if not self.files.get(BRONZE):
            return {}
        instants = watermark_instants(self.before, self.after)
        found = {name: us if us is None else instant_of(us) for name, us in instants.items()}
        if (groups := self.after.groups) is None:
            return found
        logged = {"per": groups.source.watermark_per, "of": groups.of}  # see `logged_groups`
        return found | {"groups": json.dumps(logged)}


class Logged:
    """The rows of a log, and what they say."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    @property
    def newest(self) -> int:
        """The number of the newest batch; -1 before the first."""
        most = pc.max(self.rows["batch"]).as_py()
        return -1 if most is None else int(most)

    def done(self) -> Done:
        return Done(self._where(kind=SPLIT))

    def watermark(self, source: Source, last: int | None = None) -> SourceWatermark:
        """The watermark after the newest batch with events, or that until `last`; its groups by today's settings."""
        rows = self._where(kind=BATCH)
        rows = rows.filter(pc.is_valid(rows["watermark_after"]))
        if last is not None:
            rows = rows.filter(pc.less_equal(rows["batch"], last))
        if not rows.num_rows:
            return SourceWatermark(groups=logged_groups({}, source))
        row = rows.filter(pc.equal(rows["batch"], pc.max(rows["batch"]))).to_pylist()[0]
        reached_us, at_us = micros_of(row["watermark_after"]), micros_of(row["ingested_at"])
        groups = logged_groups(json.loads(row["groups"] or "{}"), source)
        return SourceWatermark(reached_us, at_us, groups)

    def notes(self) -> list[dict[str, Any]]:
        rows = self.rows.filter(pc.is_valid(self.rows["note"])).sort_by("batch")
        return [json.loads(note) for note in rows["note"].to_pylist()]

    def files(self, table: str, batch: int) -> list[dict[str, Any]]:
        return list(self._where(kind=FILE, table=table, batch=batch).to_pylist())

    def batches(self, table: str, after: int) -> list[int]:
        """The batches behind `after` that have files for a table, in order."""
        known = self._where(kind=FILE, table=table)["batch"].to_pylist()
        return sorted({batch for batch in known if batch > after})

    def row_of(self, batch: int) -> dict[str, Any]:
        return dict(self._where(kind=BATCH, batch=batch).to_pylist()[0])

    def _where(self, **values: str | int) -> pa.Table:
        each = (pc.equal(self.rows[name], value) for name, value in values.items())
        return self.rows.filter(reduce(pc.and_, each))


def read_log(lake: Lake, source: str) -> Logged | None:
    """The log, for reading; None where nothing was ever ingested."""
    path = lake.ingest_log(source)
    with unbroken(path):
        return _read_once(path, files_of_log(path)) if lake.is_delta_table(path) else None


@lru_cache(maxsize=8)  # each stream of a source asks, and its children do
def _read_once(path: str, files: LogFiles) -> Logged:
    return _read(path, open_table(path, log=files))


def read_done(lake: Lake, source: str) -> Done:
    logged = read_log(lake, source)
    return Done() if logged is None else logged.done()


def _read(path: str, table: DeltaTable) -> Logged:
    with unbroken(path):
        # Without the log's bounds of each file: to make these costs more than reading does.
        files = table.to_pyarrow_dataset(filesystem=files_of(path), schema=pa.schema([]))
        return Logged(files.replace_schema(SCHEMA).to_table())


class Ingestion:
    """The log, bronze and quarantine of a source, each opened once; LakeError where they do not fit."""

    def __init__(self, lake: Lake, source: Source) -> None:
        self.lake, self.source, path = lake, source, lake.ingest_log(source.name)
        if not lake.is_delta_table(path):
            _refuse_without_log(lake, source.name)
            create_tables(lake, source)
            create_if_absent(path, COLUMNS, COMMENT, KEEPS_LOG)
        paths = {BRONZE: lake.bronze(source.name), QUARANTINE: lake.quarantine(source.name)}
        for each in paths.values():
            if not lake.is_delta_table(each):
                raise of_other_times(each, f"{each} is missing, but not {path}")
        self._tables = {name: Table.open(lake, each) for name, each in paths.items()}
        self.bronze, self.quarantine = self._tables[BRONZE], self._tables[QUARANTINE]
        self._log, self._staged = Table.open(lake, path), dict[str, Staged]()
        self._read_log()

    def _read_log(self) -> None:
        self._log.record()
        self.logged = logged = _read(self._log.path, self._log.delta)
        self._done = {name: newest_batch(of, logged) for name, of in self._tables.items()}

    def reopen(self) -> None:
        for table in (*self._tables.values(), self._log):  # the log has all that these have by then
            table.reopen()
        self._read_log()

    def watermark(self) -> SourceWatermark:
        return self.logged.watermark(self.source)

    def is_behind(self) -> bool:
        return any(self.logged.batches(name, done) for name, done in self._done.items())

    def stage_changes(self, rows: pa.Table) -> list[Staged]:
        """Write rows of quarantine as they are to be, in a file outside the table, to be merged."""
        files = stage(f"{self.quarantine.path}/{CHANGES}", rows, rows.schema)
        return [file._replace(path=f"{CHANGES}/{file.path}") for file in files]

    def again(self, write: Callable[[], Result]) -> Result:
        """Call `write`, which commits a batch, and again when another job was faster."""

        def attempt() -> Result:
            try:
                return write()
            except CommitFailedError:
                self.reopen()
                raise

        return despite_others(attempt)

    def commit(self, entry: Entry) -> None:
        """Log a batch, and add its files to the tables; CommitFailedError when another job was faster."""
        number, version = self.logged.newest + 1, self._log.version + 1
        rows = entry.rows(number)
        staged = stage(self._log.path, rows, SCHEMA)
        self._log.commit(staged, {"batch": number})
        self.logged = Logged(pa.concat_tables([self.logged.rows, rows]))
        self._staged = {file.path: file for files in entry.files.values() for file in files}
        self.finish()
        compact_now_and_then(self._log.delta, self._log.path)
        self._log.reopen()
        if self._log.version > version:  # by that, or by another job, with batches of its own
            self._read_log()

    def commit_rows(
        self, before: SourceWatermark, after: SourceWatermark, rows: pa.Table, **note: Any
    ) -> None:
        """Commit a batch of rows of bronze, as `bronze_rows` gives them."""
        files = stage(self.bronze.path, rows, rows.schema, by="event_date")
        self.commit(Entry(before, after, {BRONZE: files}, note=note))

    def finish(self) -> None:
        """Replay the log: add to the tables the files that they lack."""
        for name in self._tables:
            for batch in self.logged.batches(name, self._done[name]):
                self._add(name, batch)

    def _add(self, name: str, batch: int) -> None:
        table, row = self._tables[name], self.logged.row_of(batch)
        files = [self._found(table, file["path"]) for file in self.logged.files(name, batch)]
        note = json.loads(row["note"] or "{}")
        record = {"batch": batch, "commit_id": row["commit_id"], **note}
        is_merged = any(file.path.startswith(CHANGES) for file in files)

        def add() -> None:
            if self._done[name] >= batch:
                return
            if is_merged:
                _merge(table, files, record)
                for file in files:  # they are beside the table, where nobody cleans up
                    files_of(table.path).delete_file(file.path)
            else:
                table.commit(files, record)
            self._done[name] = batch

        self.again(add)  # others tidy up, or have added them meanwhile

    def _found(self, table: Table, path: str) -> Staged:
        if path in self._staged:
            return self._staged[path]
        try:
            return found_file(table.path, path)
        except FileNotFoundError:
            said = f"{table.path} lacks what {self._log.path} has: its file {path} is gone"
            raise of_other_times(table.path, said) from None


def _merge(quarantine: Table, files: Sequence[Staged], record: Record) -> None:
    """Update rows of quarantine; rows that are refused for the first time are added."""
    folder = files_of(quarantine.path)
    rows = pa.concat_tables([pq.read_table(file.path, filesystem=folder) for file in files])
    updated = {name: f"new.{name}" for name in ("resolved_at", "correction")}
    updated |= {name: f"coalesce(new.{name}, old.{name})" for name in ("reason_code", "reason")}
    inserted = {name: f"new.`{name}`" for name in rows.column_names}

    def clauses(merge: TableMerger) -> TableMerger:
        refused = "new.reason_code IS NOT NULL"
        return merge.when_matched_update(updated).when_not_matched_insert(inserted, refused)

    quarantine.merge(rows, "old.quarantine_id = new.quarantine_id", clauses, record)


def newest_batch(table: Table, logged: Logged) -> int:
    """The newest batch that bronze or quarantine has, -1 for none; LakeError where others changed it."""
    record = table.record()
    if record is None:
        return -1
    batch = int(record["batch"])
    if batch > logged.newest or record["commit_id"] != logged.row_of(batch)["commit_id"]:
        said = f"{table.path} has a batch {batch} that the ingest log, to {logged.newest}, has not"
        raise of_other_times(table.path, said)
    return batch


def has_to_replay(lake: Lake, source: Source) -> bool:
    """True if an ingest run has to add what the tables lack of the log, or to fail."""
    try:
        if lake.is_delta_table(lake.ingest_log(source.name)):
            return Ingestion(lake, source).is_behind()
        _refuse_without_log(lake, source.name)
    except LakeError:
        return True
    return False


def how_bronze_changed(lake: Lake, source: str) -> str | None:
    """A sentence on what others have done to bronze; None when nothing, or it is not there."""
    path = lake.bronze(source)
    if not lake.is_delta_table(path):
        return None
    try:
        bronze = Table.read(lake, path)  # first: so the log is no older
        logged = read_log(lake, source)
        bronze.record() if logged is None else newest_batch(bronze, logged)
    except LakeError as error:
        return error.message
    return None


def refuse_changed_bronze(lake: Lake, source: str, who: str) -> None:
    """Raise LakeError, for `who`, where bronze is not what our jobs have made it."""
    if (changed := how_bronze_changed(lake, source)) is not None:
        raise of_other_times(lake.bronze(source), f"{changed}, and {who} makes nothing of it")


def _refuse_without_log(lake: Lake, source: str) -> None:
    for path in (lake.bronze(source), lake.quarantine(source)):
        if lake.is_delta_table(path) and open_table(path).file_uris():
            said = f"{path} has rows, but {lake.ingest_log(source)} is missing"
            raise of_other_times(path, f"{said}, so all would be ingested again")


def refuse_other_connector(source: Source, done: Done) -> None:
    """Raise SettingsError where rows came from landing until now and the source has a connector, or the reverse."""
    if done.names and done.has_ids() != (source.connector is not None):
        said = f"source {source.name} was ingested from elsewhere: give this one another name"
        raise settings_changed(source.name, said)
