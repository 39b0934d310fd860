"""Who reads bronze commit by commit, how far they are, and what they still need of it.

OPTIMIZE replaces files that a reader which is behind has not read yet: it goes on reading
the replaced ones, for as long as VACUUM leaves them. And it reads each commit in the log, for
as long as the log keeps it. A reader that is up to date needs neither.

A reseed makes a reader before it has a checkpoint: the new generation will begin with the
commit after the version that was replayed. What it replays itself are rows of the newest
version, which needs nothing of the past.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.lake.delta_log import adds_data, is_of_machine, made_at, read_actions, table_to_read
from include.lake.errors import LakeError
from include.lake.findings import Finding
from include.lake.generations import Generations, is_reseeded, read_generations
from include.lake.paths import Lake
from include.registry import stream_names
from include.stream.committed_batch import (
    BronzePosition,
    newest_committed,
    newest_planned,
    read_position,
)


@dataclass(frozen=True)
class Reader:
    """A stream that reads bronze, or will, and the first version that it has not read."""

    stream: str
    next_version: int
    # None of its batches is committed. Of a first run: it reads a whole version, not only
    # commits. After a reseed: Delta begins with just that commit, whatever is in it.
    is_starting: bool


@dataclass(frozen=True)
class Lag:
    """The first commit that a reader still needs, and when that was made."""

    reader: Reader
    version: int
    since: datetime | None  # None: the log no longer has it


def readers_of(lake: Lake, table_id: str) -> list[Reader]:
    """The streams that read the table of that id, or that will by a run after a reseed.

    One without a checkpoint and a reseed is none: it will start from what is the newest version then.
    Nor is one whose file is gone: it would hold VACUUM back for ever. Raises LakeError for a checkpoint
    whose position cannot be read.
    """
    known = (_reader(lake, stream, table_id) for stream in stream_names())
    return [reader for reader in known if reader is not None]


def _reader(lake: Lake, stream: str, table_id: str) -> Reader | None:
    generations = read_generations(lake, stream)
    row, checkpoint = generations.current, lake.checkpoint(stream, generations.number)
    committed = newest_committed(lake, checkpoint)
    batch = newest_planned(lake, checkpoint) if committed is None else committed
    if row is not None and is_reseeded(row) and committed is None:
        # Also when its first batch has been planned: that begins there.
        position = BronzePosition(row["bronze_id"], row["bronze_version"] + 1)
    elif batch is not None:
        position = read_position(lake, f"{checkpoint}/offsets/{batch}")
    else:
        return None
    if position.table_id != table_id:  # one that was under this name before, or another source's
        return None
    return Reader(stream, position.version, is_starting=committed is None)


def read_lags(lake: Lake, path: str, table: DeltaTable) -> list[Lag]:
    """The readers of the table at `path` that still need something of its past."""
    readers = readers_of(lake, str(table.metadata().id))
    lags = (_read_lag(lake, path, table.version(), reader=reader) for reader in readers)
    return [lag for lag in lags if lag is not None]


def _read_lag(lake: Lake, path: str, newest: int, reader: Reader) -> Lag | None:
    for version in range(reader.next_version, newest + 1):
        actions = read_actions(lake, path, version)
        if actions is None:
            return Lag(reader, version, None)
        # What OPTIMIZE replaced may be of the version that a starting reader reads.
        if adds_data(actions) or reader.is_starting:
            return Lag(reader, version, made_at(actions))
    return None


FILE_RETENTION = ("delta.deletedFileRetentionDuration", timedelta(days=7))
LOG_RETENTION = ("delta.logRetentionDuration", timedelta(days=30))
# A commit's files are written before it, and the clocks of writers and storage differ.
MARGIN = timedelta(days=1)
# Of the log's retention: a reader behind by more is told while there is time to act.
LOG_SHARE = 0.5
SPAN = re.compile(r"(\d+)\s*(week|day|hour|minute|second|millisecond)s?")


def retention(configuration: Mapping[str, str], setting: tuple[str, timedelta]) -> timedelta:
    """A table's setting such as `interval 7 days`, or its default; LakeError for another text."""
    name, default = setting
    text = configuration.get(name)
    if text is None:
        return default
    spans = SPAN.findall(text.lower())
    if SPAN.sub("", text.lower()).removeprefix("interval").strip() or not spans:
        raise LakeError(
            f"{name} is {text!r}: expected a text such as 'interval 7 days'",
            code="foreign_properties",
            subject=name,
        )
    return sum((timedelta(**{f"{unit}s": int(count)}) for count, unit in spans), timedelta(0))


def why_not_vacuum(lags: Sequence[Lag], kept: timedelta, now: datetime) -> str | None:
    """Why files older than `kept` must not be deleted now; None when nobody needs them.

    A commit of which the log has nothing holds back nothing: nobody can read on from there.
    """
    needed = [(lag.since, lag) for lag in lags if lag.since and lag.since < now - kept + MARGIN]
    if not needed:
        return None
    since, lag = min(needed, key=lambda pair: pair[0])
    return (
        f"stream {lag.reader.stream} has not read version {lag.version}, of {since:%Y-%m-%d %H:%M} UTC, and "
        f"VACUUM would delete what is older than {_days(kept)}"
    )


def lag_findings(table: str, lags: Sequence[Lag], kept: timedelta, now: datetime) -> list[Finding]:
    """A warning for each reader that the clean-up of a log kept for so long may cut off."""
    found = []
    for lag in lags:
        if lag.since is None:
            found.append(_cut_off(table, lag))
        elif now - lag.since > kept * LOG_SHARE:
            found.append(_behind(table, lag, lag.since, kept=kept, now=now))
    return found


def _cut_off(table: str, lag: Lag) -> Finding:
    return Finding(
        finding="reader_cut_off",
        severity="warning",
        detail=f"stream {lag.reader.stream} would go on with version {lag.version} of {table}, but the "
        "clean-up of the table's log has taken that away: its next run fails",
        action="put an older copy of the log's files back, or make the state anew from bronze: "
        f"`./stateful reseed {lag.reader.stream} --apply`",
    )


def _behind(table: str, lag: Lag, since: datetime, kept: timedelta, now: datetime) -> Finding:
    return Finding(
        finding="reader_behind",
        severity="warning",
        detail=f"stream {lag.reader.stream} has not read version {lag.version} of {table}, of "
        f"{since:%Y-%m-%d %H:%M} UTC: from {since + kept:%Y-%m-%d} on the table's log no longer "
        "has it, and the stream cannot go on",
        figure=(now - since) / timedelta(days=1),
        limit=kept * LOG_SHARE / timedelta(days=1),
        unit="days",
        action="run the stream before that",
    )


def _days(span: timedelta) -> str:
    return f"{span / timedelta(days=1):g} days"


@dataclass(frozen=True)
class Needed:
    """The first version of bronze that a stream's next run asks the log for."""

    version: int
    is_gone: bool  # the next run cannot go on
    made_at: datetime | None  # None: the log no longer has its commit
    kept: timedelta  # by the log

    @property
    def is_growing_old(self) -> bool:
        """Whether the next run is to read a still row, while the log is not yet cut there."""
        return self.made_at is not None and datetime.now(UTC) - self.made_at > self.kept * LOG_SHARE


def needed_commit(lake: Lake, generations: Generations, source: str) -> Needed | None:
    """None when the next run begins with a commit that is still to come, or with all of bronze."""
    bronze = lake.bronze(source)
    start = _start(lake, generations)
    if start is None or not lake.is_delta_table(bronze):
        return None
    table = table_to_read(bronze)
    if start.table_id != str(table.metadata().id) or start.version > table.version():
        return None
    commit = read_actions(lake, bronze, start.version)
    made = None if commit is None else made_at(commit)
    is_gone = _is_unreadable(bronze, start.version) if start.is_snapshot else made is None
    kept = retention(table.metadata().configuration, LOG_RETENTION)
    return Needed(start.version, is_gone, made, kept=kept)


def refuse_cut_off(lake: Lake, generations: Generations, source: str) -> None:
    """LakeError when bronze's log no longer has what the next run reads first."""
    stream, needed = generations.stream, needed_commit(lake, generations, source)
    if needed is not None and needed.is_gone:
        raise LakeError(
            f"{stream} would go on with version {needed.version} of {lake.bronze(source)}, but the "
            "clean-up of the table's log has taken that away. Put an older copy of the log's files "
            "back, or make the state anew from bronze, which has all its rows",
            code="cleaned_up_version",
            subject=f"bronze/{source}",
            command=f"./stateful reseed {stream} --apply",
        )


class _Start(NamedTuple):
    """Where the newest batch began: with a commit, or with all that was there by a version."""

    table_id: str
    version: int
    is_snapshot: bool = False


def _start(lake: Lake, generations: Generations) -> _Start | None:
    """None before the first batch, which reads a snapshot; after a reseed, the commits since."""
    row = generations.current
    checkpoint = lake.checkpoint(generations.stream, generations.number)
    planned = newest_planned(lake, checkpoint)
    if not planned and row is not None and is_reseeded(row):
        return _Start(row["bronze_id"], row["bronze_version"] + 1)
    if planned is None:
        return None
    position = read_position(lake, f"{checkpoint}/offsets/{max(planned - 1, 0)}")
    if planned > 0:
        return _Start(position.table_id, position.version)
    return _Start(position.table_id, position.version - 1, is_snapshot=True)


def _is_unreadable(bronze: str, version: int) -> bool:
    """Whether neither commits nor a checkpoint lead to that version any more."""
    try:
        return table_to_read(bronze, version=version).version() != version
    except DeltaError as error:
        if is_of_machine(error):
            raise
        return True
