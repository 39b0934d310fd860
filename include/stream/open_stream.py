"""A stream with its record, read once and handed on.

The newest record in the table's log is compared with checkpoint, bronze and dead letters before a
job builds on it: any of them may be an older copy.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import instant_of
from include.fold.definition import Definition, KeyedFold
from include.ingest.amendments import Amendments, amendments_of
from include.ingest.ingest_log import KEEPALIVE, refuse_changed_bronze
from include.lake.dead_letters import dead_letters_number, has_dead_letters_of
from include.lake.delta_log import adds_data, commit_hash, open_table, read_actions
from include.lake.errors import LakeError, how_to_mend
from include.lake.generations import GenerationRow, Generations, is_rebuilt, read_generations
from include.lake.ops import runs_of
from include.lake.paths import Lake
from include.lake.table import Table, of_other_times, record_of
from include.settings import MIB, Stream
from include.stream.bronze import count_events, needed_commit
from include.stream.checkpoint import (
    is_complete,
    newest_begun,
    newest_committed,
    offsets_hash,
    read_position,
)
from include.stream.manifest import StreamIdentity
from include.stream.record import RecordEntry, StreamRecord, recorded, totals_of
from include.stream.stream_identity import identity_of
from include.stream_definition import load_definition


@dataclass(frozen=True)
class OpenStream:
    """A stream as of one reading of its table's record."""

    lake: Lake
    declared: Stream  # as its file says
    generations: Generations

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def source(self) -> str:
        return self.declared.source

    @property
    def row(self) -> GenerationRow | None:
        """The row of the current generation; None before the first run or rebuild."""
        return self.generations.current

    @property
    def generation(self) -> int:
        return self.generations.number

    @property
    def checkpoint(self) -> str:
        """The path of the current generation's checkpoint, which may not be there yet."""
        return self.lake.checkpoint(self.name, self.generation)

    @property
    def is_rebuilt(self) -> bool:
        """True if the generation began with a savepoint, and not with a stream's first run."""
        return is_rebuilt(self.row)

    @cached_property
    def stream(self) -> Stream:
        """The stream with the buckets and state partitions that its generation was made with."""
        row = self.row
        if row is None or not self.is_rebuilt:
            return self.declared
        pinned = {name: row[name] for name in ("buckets", "state_partitions")}
        return replace(self.declared, **pinned)

    @cached_property
    def definition(self) -> Definition:
        """The stream's definition; SettingsError when its file is wrong."""
        return load_definition(self.stream)

    @property
    def fold(self) -> KeyedFold:
        return self.definition.fold

    @cached_property
    def identity(self) -> StreamIdentity:
        """The stream's identity; SettingsError when its file or its initial state is wrong."""
        return identity_of(self.lake, self.stream, self.generations)

    @cached_property
    def bronze(self) -> Table | None:
        """Bronze that it reads, as of one reading; None: not there yet. LakeError when it cannot be read."""
        path = self.lake.bronze(self.source if self.row is None else self.row["source"])
        return Table.read(self.lake, path) if self.lake.is_delta_table(path) else None

    def rows_unread(self) -> int:
        """Count bronze's events that no batch of the stream has read yet."""
        in_bronze = 0 if self.bronze is None else count_events(self.bronze.delta)
        return in_bronze - int(totals_of(self.record, self.row)["total_in"])

    @cached_property
    def amendments(self) -> Amendments:
        """The amendments of its source."""
        return amendments_of(self.lake, self.source)

    @cached_property
    def mismatch(self) -> str | None:
        """The reason why the record in the table's log does not hold; None: it does."""
        return _mismatch(self)

    @cached_property
    def record(self) -> StreamRecord:
        """The record; a new stream's when that in the table's log does not hold."""
        is_unknown = self.mismatch is not None
        return StreamRecord(stream=self.name) if is_unknown else recorded(self.generations)

    def trusted(self) -> StreamRecord:
        """Return the record; LakeError when it does not hold."""
        if self.mismatch is not None:
            raise self._of_other_times(self.mismatch)
        return self.record

    def refuse_run(self) -> None:
        """LakeError when an erasure, a watermark set back or others' changes keep its state."""
        self.amendments.refuse_state(self.name, self.row)
        refuse_changed_bronze(self.lake, self.source, who=self.name)

    def refuse_other_checkpoint(self) -> None:
        """Raise LakeError when no batch may follow on the checkpoint, or the record does not hold.

        After an older checkpoint batches would get numbers that the table has already; a stream
        that has read more than bronze has would pass over what comes in its place.
        """
        lake, record = self.lake, self.trusted()
        batch_id = record.batch_of(self.generation)
        found = None if batch_id is None else offsets_hash(lake, self.checkpoint, batch_id)
        if batch_id is not None and found != record.offsets_hash:
            raise self._of_other_times(f"{self.checkpoint} lacks batch {batch_id} of the table")
        if self.row is None:
            return
        is_complete(lake, self.checkpoint)  # LakeError when the newest batch names no watermark
        begun = newest_begun(lake, self.checkpoint)
        if begun is None:
            return
        position = read_position(lake, f"{self.checkpoint}/offsets/{begun}")
        read, newest = position.version - 1, _newest_version(self, position.table_id)
        if newest is None or newest < read:
            bronze = lake.bronze(self.row["source"])
            raise self._of_other_times(f"{bronze} lacks version {read}, which was read")

    def _of_other_times(self, reason: str) -> LakeError:
        path = f"checkpoints/{self.name}"
        said = f"what {self.name} is made of is of different times, or others have changed it: {reason}"
        return of_other_times(
            path, f"{said}. Nothing was done. To mend it: {how_to_mend(path).words}"
        )

    @property
    def is_ahead(self) -> bool:
        """True if an update table shows keys as of different instants after a run that was cut off,
        or may do so, as its checkpoint is damaged."""
        if self.row is None or self.row["output_mode"] != "update":
            return False
        committed = newest_committed(self.lake, self.checkpoint)
        if committed != newest_begun(self.lake, self.checkpoint):
            return True
        if self.record.batch_of(self.generation) not in (committed, None):
            return True
        try:
            return not is_complete(self.lake, self.checkpoint)
        except LakeError:
            return True

    def after(self, record: StreamRecord) -> "OpenStream":
        """Return the stream as it is after a commit of ours with that record."""
        return replace(self, generations=replace(self.generations, record=record.as_json()))


def open_stream(lake: Lake, stream: Stream) -> OpenStream:
    """Open `stream` as it is recorded now; a writer does so under the stream's lease."""
    return OpenStream(lake, stream, read_generations(lake, stream.name))


def _mismatch(opened: OpenStream) -> str | None:
    lake, generations = opened.lake, opened.generations
    if generations.mismatch is not None:
        return generations.mismatch
    record = recorded(generations)
    own, counted = record.own, (record.dead_letters, record.dead_letters_commit)
    try:  # dead letters are committed before the rows
        has_dead_letters = has_dead_letters_of(lake, opened.name, *counted)
    except LakeError as error:
        return error.message
    committed = newest_committed(lake, opened.checkpoint)
    if own is None:
        return None if committed is None else "the table has no record, and its stream has run"
    if (generations.newest_folder or 0) > generations.number:
        return f"the table has no generation {generations.newest_folder}, which has a checkpoint"
    if _lacks_batch(record.batch_of(generations.number), committed):
        return f"the table does not have batch {committed}, which its checkpoint has committed"
    if opened.row is not None and _is_other_bronze(opened, record, own):
        return f"{lake.bronze(opened.row['source'])} does not have the version that was read"
    if not has_dead_letters:
        return f"{lake.dead_letters(opened.name)} lacks commits that the table's rows go with"
    return None


def _lacks_batch(written: int | None, committed: int | None) -> bool:
    """True if the checkpoint has committed a batch that the table lacks, which is written first."""
    return committed is not None and (written is None or written < committed)


def _is_other_bronze(opened: OpenStream, record: StreamRecord, own: RecordEntry) -> bool:
    """True if bronze is another table, is shorter, or has another commit at the version that was read."""
    if own.bronze_id is None or opened.row is None:
        return False
    newest = _newest_version(opened, own.bronze_id)
    if newest is None:
        return True
    read = [
        (entry.read_version, entry.read_commit)
        for entry in record.entries
        if entry.bronze_id == own.bronze_id and entry.read_version is not None
    ]
    version, commit = max(read, default=(0, None))
    found = commit_hash(opened.lake, opened.lake.bronze(opened.row["source"]), version)
    # The clean-up of bronze's log may have taken the commit.
    return newest < version or (None not in (found, commit) and found != commit)


def _newest_version(opened: OpenStream, table_id: str | None) -> int | None:
    """The newest version of bronze, if it has this id; LakeError when it cannot be read."""
    bronze = opened.bronze
    return None if bronze is None or str(bronze.delta.metadata().id) != table_id else bronze.version


# The jobs that commit batches of a stream.
DRAINING_JOBS = ("run_stream", "compact_state")


def has_waiting_rows(lake: Lake, stream: Stream) -> bool:
    """True if a run of `stream` would find something to do, or when in doubt."""
    opened = open_stream(lake, stream)
    try:
        if (bronze := opened.bronze) is None:
            return False
        opened.refuse_run()
        opened.refuse_other_checkpoint()
    except LakeError:
        return True  # the run fails, and says why
    begun = newest_begun(lake, opened.checkpoint)
    return _is_cut_off(opened, begun) or _is_behind(opened, bronze, begun)


def _is_cut_off(opened: OpenStream, begun: int | None) -> bool:
    """True if the next run has to finish what another has begun."""
    lake = opened.lake
    if begun is None and opened.is_rebuilt:
        return True  # the first run makes a checkpoint of the seed
    if begun != newest_committed(lake, opened.checkpoint):
        return True
    if dead_letters_number(lake, opened.name) > opened.record.dead_letters:
        return True  # dead letters that a killed job has replaced
    return _is_unreported(opened) or not is_complete(lake, opened.checkpoint)


def _is_behind(opened: OpenStream, bronze: Table, begun: int | None) -> bool:
    """True if bronze has rows that the stream has not read, or the log may lose what it reads next."""
    lake, first = opened.lake, 0
    if begun is not None:
        first = read_position(lake, f"{opened.checkpoint}/offsets/{begun}").version
    versions = range(first, bronze.version + 1)
    if any(_has_data(lake, bronze.path, version) for version in versions):
        return True
    needed = needed_commit(lake, opened.generations, bronze)
    return needed is not None and (needed.is_gone or needed.is_growing_old)


def _is_unreported(opened: OpenStream) -> bool:
    """True if the run has died that moved the table on: the next one reports it."""
    own = opened.record.own
    if own is None or own.until_us is None:
        return False
    where = {"outcome": "succeeded", "until": instant_of(own.until_us)}
    return not runs_of(opened.lake, opened.name, DRAINING_JOBS, ["job"], **where).num_rows


def _has_data(lake: Lake, bronze: str, version: int) -> bool:
    """True if a commit added rows that are worth a run: those of a compaction are not."""
    actions = read_actions(lake, bronze, version)
    if actions is None:
        return True  # cleaned up: the run decides
    if (record := record_of(actions)) and record.get(KEEPALIVE):
        return False
    return adds_data(actions)


FETCHED_ROWS = 200_000
MERGED_BYTES = 256 * MIB


def is_small(opened: OpenStream) -> bool:
    """True if the driver writes the run's batches faster than Spark, and others can share its JVM.

    By the rows that wait, and by an update table's size: a MERGE of delta-rs reads all of it.
    """
    path, size = opened.lake.table(opened.name), 0
    # Also of an append table: it raises when the log cannot be read.
    if opened.lake.is_delta_table(path):
        files = pa.table(open_table(path).get_add_actions())
        size = pc.sum(files["size_bytes"]).as_py() or 0
    is_light = opened.fold.output_mode == "append" or size <= MERGED_BYTES
    return opened.rows_unread() <= FETCHED_ROWS and is_light
