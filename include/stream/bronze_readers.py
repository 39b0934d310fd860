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

from include.catalogue import FINDINGS
from include.lake.delta_log import adds_data, is_of_machine, made_at, read_actions, table_to_read
from include.lake.errors import LakeError
from include.lake.findings import Finding
from include.lake.generations import Generations, is_reseeded, read_generations
from include.lake.paths import Lake
from include.registry import stream_names
from include.stream.checkpoint import (
    BronzePosition,
    newest_committed,
    newest_planned,
    read_position,
)


@dataclass(frozen=True)
class Lag:
    """The first commit that a stream still needs of bronze, and when that was made."""

    stream: str
    version: int
    since: datetime | None  # None: the log no longer has it


def read_lags(lake: Lake, path: str, table: DeltaTable) -> list[Lag]:
    """The streams that still need something of the past of the table at `path`.

    One without a checkpoint and a reseed does not: it will start from what is the newest version then.
    Nor does one whose file is gone: it would hold VACUUM back for ever. Raises LakeError for a checkpoint
    whose position cannot be read.
    """
    lags = (_read_lag(lake, path, table, stream) for stream in stream_names())
    return [lag for lag in lags if lag is not None]


def _read_lag(lake: Lake, path: str, table: DeltaTable, stream: str) -> Lag | None:
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
    if position.table_id != str(
        table.metadata().id
    ):  # another source's, or one before of this name
        return None
    for version in range(position.version, table.version() + 1):
        actions = read_actions(lake, path, version)
        if actions is None:
            return Lag(stream, version, None)
        # What OPTIMIZE replaced may be of the version that a first batch reads: a whole one, not only
        # commits; after a reseed Delta begins with just that commit, whatever is in it.
        if adds_data(actions) or committed is None:
            return Lag(stream, version, made_at(actions))
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
        f"stream {lag.stream} has not read version {lag.version}, of {since:%Y-%m-%d %H:%M} UTC, and "
        f"VACUUM would delete what is older than {_days(kept)}"
    )


def lag_findings(table: str, lags: Sequence[Lag], kept: timedelta, now: datetime) -> list[Finding]:
    """A warning for each stream that the clean-up of a log kept for so long may cut off."""
    found = []
    for lag in lags:
        said = f"stream {lag.stream} goes on with version {lag.version} of {table}"
        if lag.since is None:
            said += ", which the clean-up of the table's log has taken away: its next run fails"
            do = (
                "put an older copy of the log's files back, or make the state anew from bronze: "
                f"`./stateful reseed {lag.stream} --apply`"
            )
            found.append(FINDINGS["reader_cut_off"].found(table, said, do))
        elif now - lag.since > kept * LOG_SHARE:
            said += f", of {lag.since:%Y-%m-%d %H:%M} UTC: from {lag.since + kept:%Y-%m-%d} on the log has it no more"
            figures = {
                "figure": (now - lag.since) / timedelta(days=1),
                "limit": kept * LOG_SHARE / timedelta(days=1),
            }
            do = "run the stream before that"
            found.append(FINDINGS["reader_behind"].found(table, said, do, unit="days", **figures))
    return found


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
