"""Whether VACUUM may run: not where it could delete what a reader of bronze has yet to read.

VACUUM deletes files that were replaced, and last written, longer ago than the table's
retention. It is refused as a whole while a reader is behind by about that much: asked to keep
more with RETAIN, Delta 4 does not listen (`vacuum.retentionWindowIgnore.enabled`), and it
forgets after the retention which files were replaced when.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from include.checkpoint.bronze_readers import Lag
from include.lake.findings import Finding
from include.lake.paths import LakeError

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
        f"{_reader(lag)} has not read version {lag.version}, of {since:%Y-%m-%d %H:%M} UTC, and "
        f"VACUUM would delete what is older than {_days(kept)}"
    )


def lag_findings(table: str, lags: Sequence[Lag], kept: timedelta, now: datetime) -> list[Finding]:
    """A warning for each reader that the clean-up of a log kept for so long may cut off."""
    found = []
    for lag in lags:
        if lag.since is None:
            found.append(_cut_off(table, lag))
        elif now - lag.since > kept * LOG_SHARE:
            found.append(_behind(table, lag, lag.since, kept, now))
    return found


def _cut_off(table: str, lag: Lag) -> Finding:
    return Finding(
        finding="reader_cut_off",
        severity="warning",
        detail=f"{_reader(lag)} would go on with version {lag.version} of {table}, but the "
        "clean-up of the table's log has taken that away: its next run fails",
        action=_way_out(
            lag,
            "put an older copy of the log's files back, or make the state anew from bronze: "
            f"`./stateful reseed {lag.reader.stream} --apply`",
        ),
    )


def _behind(table: str, lag: Lag, since: datetime, kept: timedelta, now: datetime) -> Finding:
    return Finding(
        finding="reader_behind",
        severity="warning",
        detail=f"{_reader(lag)} has not read version {lag.version} of {table}, of "
        f"{since:%Y-%m-%d %H:%M} UTC: from {since + kept:%Y-%m-%d} on the table's log no longer "
        "has it, and the stream cannot go on",
        figure=(now - since) / timedelta(days=1),
        limit=kept * LOG_SHARE / timedelta(days=1),
        unit="days",
        action=_way_out(lag, "run the stream before that"),
    )


def _reader(lag: Lag) -> str:
    kind = "the left-over checkpoint of stream" if lag.reader.is_leftover else "stream"
    return f"{kind} {lag.reader.stream}"


def _way_out(lag: Lag, action: str) -> str:
    if not lag.reader.is_leftover:
        return action
    # With all of its generations: one that has yet to begin has no folder of its own.
    folder = lag.reader.checkpoint.rpartition("/")[0]
    return f"if the stream is gone for good, delete {folder}; else {action}"


def _days(span: timedelta) -> str:
    return f"{span / timedelta(days=1):g} days"
