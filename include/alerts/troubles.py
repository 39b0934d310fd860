"""What is wrong with a stream and its source now, and what of it a check has found to be over.

A finding is what one run or check saw. An alert lasts: it opens with a finding of severity warning
or error, and closes when a run and its check have come that do not find it any more. A run that
failed has looked at nothing, so it closes nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from include.catalogue import FINDINGS
from include.lake.findings import Finding
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.observe.recorded import INGEST, RUN, Recorded, Row, newest_of_each
from include.observe.stream_line import WINDOW_DAYS, StreamLine, line_without_state
from include.settings import Stream
from include.text_table import first_names

TOLD = ("error", "warning")  # the severities that people are told of, the worst first
BEHIND, FAILED = "behind_promise", "run_failed"
OF_CHECKS = {name for name, figure in FINDINGS.items() if figure.by == "check"}
UNSURE = {"written_while_measured", "checkpoint_unreadable"}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How it stands with one subject of `ops/findings`."""

    subject: str
    open: Mapping[str, Row]  # by finding
    is_checked: bool  # what is not open is over
    over: Set[str] = frozenset()  # over in any case, unless it is open
    unknown: Set[str] = frozenset()  # nobody has looked: neither open nor over
    recent: Sequence[Row] = ()  # found of late, be it over by now


def standings(
    lake: Lake,
    stream: Stream,
    now: datetime,
    streams: Collection[str],
    failed: Sequence[str] | None = None,
) -> list[Standing]:
    """Of `stream`, and of its source.

    `streams`: the names of all. `failed`: the tasks of this Dag run that failed; None: not known.
    """
    recorded = Recorded(lake, now - timedelta(days=WINDOW_DAYS), stream)
    line = line_without_state(recorded, stream, now)
    own = [row for row in line.found if row["subject"] == stream.name]
    for finding in (_behind(stream, line), _failed(recorded, stream, failed or ())):
        own += [] if finding is None else [asdict(finding) | {"subject": stream.name}]
    mine = Standing(
        subject=stream.name,
        open=worst(own),
        is_checked=_is_checked(recorded, stream, own),
        over=line.mended | {BEHIND} | (set() if failed is None else {FAILED}),
        # Of a backfill, or a deadline: that the newest run was checked says nothing of its other tasks.
        unknown={FAILED} if failed is None else set(),
        recent=_recent(recorded, stream.name, now),
    )
    # A stream that is called as its source is has the findings of both, and tells of them.
    if stream.source in streams:
        return [mine]
    of_source = Standing(
        subject=stream.source,
        open=worst(row for row in line.found if row["subject"] == stream.source),
        is_checked=_has_succeeded(recorded, INGEST, stream.source),
        recent=_recent(recorded, stream.source, now),
    )
    return [mine, of_source]


def _recent(recorded: Recorded, subject: str, now: datetime) -> list[Row]:
    """What runs and commands have told of themselves in the window, be it over by now.

    Others may have come before anybody looked, such as a run by hand, a second try, or another
    stream that took more of the source in: what is an event, none of them finds again. What a
    check finds, the next one does, unless it is over.
    """
    rows = [
        row
        for row in recorded.findings.get(subject, ())
        if row["severity"] in TOLD
        and row["finding"] not in OF_CHECKS
        and recorded.since <= row["found_at"] <= now
    ]
    return newest_of_each(rows, ("run_id", "finding"))


def worst(rows: Iterable[Row]) -> dict[str, Row]:
    """Of each finding the worst row that people are told of, with the count of all; how many others
    there are is in its detail."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        if row["severity"] in TOLD:
            by_name.setdefault(row["finding"], []).append(row)
    return {name: _together(found) for name, found in by_name.items()}


def _together(rows: list[Row]) -> Row:
    first = min(rows, key=lambda row: (TOLD.index(row["severity"]), -(row.get("count") or 0)))
    others = {row["detail"]: row for row in rows if row["detail"] != first["detail"]}.values()
    if not others:
        return first
    counts = [n for row in (first, *others) if (n := row.get("count")) is not None]
    detail = f"{first['detail']} (and {len(others)} more)"
    return {**first, "detail": detail, "count": sum(counts) if counts else None}


def _is_checked(recorded: Recorded, stream: Stream, own: Sequence[Row]) -> bool:
    """Whether the newest run succeeded, and a check has looked at what it left, all of it."""
    if not _has_succeeded(recorded, RUN, stream.name):
        return False
    if any(row["finding"] in UNSURE for row in own):
        return False
    since = ("measured_at", recorded.runs[RUN, stream.name].newest["started_at"])
    where = {"stream": stream.name}
    return bool(
        read_ops(recorded.lake, "checkpoint_sizes", where, ("measured_at",), since).num_rows
    )


def _has_succeeded(recorded: Recorded, job: str, subject: str) -> bool:
    """Whether the newest run has."""
    runs = recorded.runs.get((job, subject))
    return runs is not None and runs.newest["outcome"] == "succeeded"


def _behind(stream: Stream, line: StreamLine) -> Finding | None:
    promised = stream.fresh_within
    if promised is None or line.until_lag is None or line.until_lag <= promised:
        return None
    lag, most = line.until_lag.total_seconds(), promised.total_seconds()
    said = f"tables/{stream.name} is complete until {line.until:%F %T} UTC, and fresh_within={promised} is promised"
    return FINDINGS[BEHIND].found(stream.name, said, figure=lag, limit=most, unit="seconds")


def _failed(recorded: Recorded, stream: Stream, tasks: Sequence[str]) -> Finding | None:
    if not tasks:
        return None
    errors = [
        str(recorded.runs[of].newest["error"])
        for of in ((INGEST, stream.source), (RUN, stream.name))
        if of in recorded.runs and not _has_succeeded(recorded, *of)
    ]
    said = "; ".join([f"failed: {first_names(sorted(tasks))}", *errors])
    return FINDINGS[FAILED].found(stream.name, said)
