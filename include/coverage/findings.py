"""Findings on a table that is not right, and what an operation would do to its coverage, in words."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

from include.catalogue import FINDINGS
from include.coverage.judge import Coverage, LateGroup, Reason, Span
from include.coverage.record import BEGINNING_US
from include.fold.admission import instant_of
from include.lake.findings import Finding
from include.lake.how_to_mend import how_to_trust_again
from include.landing.amendments import how_to_finish
from include.settings import Stream
from include.text_table import counted, first_names

ONE_DAY = timedelta(days=1)
SHOWN = 5
OF_COVERAGE = {"late_rows_not_recomputed", "state_lacks_rows", "table_not_right"}
WHY: dict[Reason, str] = {
    "late rows": "without late rows that are in bronze",
    "other code": "by other code than today's",
    "not recorded": "nothing is recorded of it",
    "cut off": "a run was cut off, and some keys are ahead: the stream's next run settles them",
}


def coverage_findings(
    stream: Stream, coverage: Coverage, is_append: bool, is_mapped: bool = False
) -> list[Finding]:
    """A finding for each cause for which the table of `stream`, or its live state, is not right.

    `is_mapped`: its states go back to mapped ones, which no replay makes.
    """
    found = _findings(stream, coverage, is_append)
    if not is_mapped:
        return found
    return [
        replace(
            finding,
            action=f"{finding.action}. What is of before its states were mapped, "
            f"`./stateful reseed {stream.name} --recompute --apply` alone makes right: it gives them up",
        )
        for finding in found
    ]


def _findings(stream: Stream, coverage: Coverage, is_append: bool) -> list[Finding]:
    late = [span for span in coverage.wrong if span.reason == "late rows"]
    others = [span for span in coverage.wrong if span.reason != "late rows"]
    found = []
    if groups := not_recomputed(late):
        found.append(_late_rows(stream, coverage, late, groups=groups, is_append=is_append))
    elif late or _reason(coverage) == "late rows":
        found.append(_state_lacks(stream, coverage, late))
    if others or _reason(coverage) not in (None, "late rows"):
        found.append(_not_right(stream, coverage, others, is_append=is_append))
    return found


def distrusted(stream: Stream, table: str, reason: str) -> Finding:
    """The table is not what was recorded of it: the next run stops."""
    return FINDINGS["table_changed"].found(
        stream.name,
        f"{table} is not what was recorded of it: {reason}",
        str(how_to_trust_again(stream.name)),
    )


def unfinished_erasure(stream: Stream) -> Finding:
    """Bronze is without a key, and the state is not made of that yet."""
    return FINDINGS["erasure_unfinished"].found(
        stream.source,
        f"an erasure of a key of {stream.source} was begun and is not finished: table, state and "
        f"savepoints of {stream.name} may have it, and no run goes on until then",
        how_to_finish(stream.source),
    )


def not_recomputed(late: Iterable[Span]) -> list[LateGroup]:
    """The late rows that not even the part of the table at their own instant has."""
    found = {
        group
        for span in late
        for group in span.missing
        if group.first_us < span.until_us and span.from_us <= group.last_us
    }
    return sorted(found, key=lambda group: (group.date, group.ingested_at_us))


def spans_text(spans: Sequence[Span]) -> str:
    """The instants of some spans, for people."""
    texts = [
        f"from {instant_text(s.from_us)} until {instant_text(s.until_us)} UTC ({_why(s)})"
        for s in spans
    ]
    more = len(texts) - SHOWN
    return "; ".join(texts[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _why(span: Span) -> str:
    if span.reason != "late rows":
        return WHY[span.reason] if span.reason else "right"
    rows = sum(group.rows for group in span.missing)
    return f"without {counted(rows, 'late row')} of {_dates_text(span.missing)}"


def _late_rows(
    stream: Stream,
    coverage: Coverage,
    spans: Sequence[Span],
    groups: Sequence[LateGroup],
    is_append: bool,
) -> Finding:
    rows = sum(group.rows for group in groups)
    return FINDINGS["late_rows_not_recomputed"].found(
        stream.name,
        f"Late rows ({rows:,}) of {_dates_text(groups)} are in bronze, and the table was "
        "computed without them",
        _action(stream, coverage, groups, is_append=is_append),
        count=rows,
        event_time_from=known_instant(min(span.from_us for span in spans)),
        event_time_to=known_instant(max(span.until_us for span in spans)),
    )


def _action(
    stream: Stream, coverage: Coverage, groups: Sequence[LateGroup], is_append: bool
) -> str:
    promote = promote_text(stream)
    if not is_append:
        return f"{promote} takes them into the table and the live state"
    return (
        f"{_recomputes(stream, coverage, groups)}; or in Airflow backfill the Dag "
        f"stream_{stream.name}: {ranges_text(groups)} (UTC), Reprocess "
        "Behavior: All Runs (Missing Runs leaves out dates that have a run). "
        f"Later rows and the live state take them in only by {promote}"
    )


def _recomputes(stream: Stream, coverage: Coverage, groups: Iterable[LateGroup]) -> str:
    """The commands that take late rows into the table; none goes beyond what is settled."""
    commands = []
    for first, last in _ranges(groups):
        start, until = f"{first:%F}", f"{last + ONE_DAY:%F}"
        if (settled := known_instant(coverage.until_us)) and f"{settled:%F}" < until:
            until = f"{settled.replace(tzinfo=None).isoformat()}Z"
        commands.append(f"`./stateful recompute {stream.name} {start} {until}`")
    return _first(commands)


def _state_lacks(stream: Stream, coverage: Coverage, late: Sequence[Span]) -> Finding:
    live = coverage.live
    groups = {group for span in [*late, *([live] if live else [])] for group in span.missing}
    since = f", and is not right {spans_text(late)}" if late else ""
    return FINDINGS["state_lacks_rows"].found(
        stream.name,
        f"The live state was computed {WHY['late rows']}: what {stream.name} emits from it "
        f"lacks their effect{since}",
        f"{promote_text(stream)} takes them in",
        count=sum(group.rows for group in groups),
        event_time_from=known_instant(min((s.from_us for s in late), default=coverage.until_us)),
        event_time_to=known_instant(max((s.until_us for s in late), default=coverage.until_us)),
    )


def _reason(coverage: Coverage) -> Reason | None:
    return coverage.live.reason if coverage.live else None


def _not_right(
    stream: Stream, coverage: Coverage, spans: Sequence[Span], is_append: bool
) -> Finding:
    what = f"the table of {stream.name} is right {spans_text(spans)}"
    if not spans and coverage.live is not None:
        what = f"what {stream.name} emits from here on is right ({_why(coverage.live)})"
    dates = f"; `./stateful recompute {stream.name} FROM UNTIL` does it for some dates"
    first = spans[0].from_us if spans else coverage.until_us
    return FINDINGS["table_not_right"].found(
        stream.name,
        f"Nothing proves that {what}",
        f"`./stateful reseed {stream.name} --apply` makes it anew from bronze by today's "
        f"code; without --apply it shows the plan{dates if is_append and spans else ''}",
        event_time_from=known_instant(first),
        event_time_to=known_instant(spans[-1].until_us if spans else coverage.until_us),
    )


def promote_text(stream: Stream) -> str:
    """The ways to take late rows into the live state."""
    return (
        f"`./stateful reseed {stream.name} --apply` (or in Airflow a backfill with the parameter "
        "promote: tick Override parameters on existing runs)"
    )


def _dates_text(groups: Iterable[LateGroup]) -> str:
    return first_names([f"{day:%F}" for day in sorted({group.date for group in groups})], SHOWN)


def ranges_text(groups: Iterable[LateGroup]) -> str:
    """The dates of late rows as Airflow's dialog takes them."""
    return _first([f"From {first:%F} 00:00, To {last:%F} 23:59" for first, last in _ranges(groups)])


def _ranges(groups: Iterable[LateGroup]) -> list[tuple[date, date]]:
    """Their dates, first and last of each that are next to each other."""
    ranges: list[tuple[date, date]] = []
    for day in sorted({group.date for group in groups}):
        if ranges and day - ranges[-1][1] <= ONE_DAY:
            ranges[-1] = (ranges[-1][0], day)
        else:
            ranges.append((day, day))
    return ranges


def _first(texts: Sequence[str]) -> str:
    more = len(texts) - SHOWN
    return "; then ".join(texts[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def instant_text(micros: int) -> str:
    """An instant of a table for people; the beginning is one, too."""
    return "the beginning" if micros == BEGINNING_US else f"{instant_of(micros):%Y-%m-%d %H:%M:%S}"


def known_instant(micros: int | None) -> datetime | None:
    """An instant of a table; None for the beginning, and for none."""
    return None if micros is None or micros == BEGINNING_US else instant_of(micros)


def effect_text(coverage: Coverage, from_us: int | None, until_us: int) -> str:
    """What an operation that computes `[from_us, until_us)` anew does to a table (None: the beginning)."""
    first_us = BEGINNING_US if from_us is None else from_us
    inside = [part for s in coverage.wrong if (part := _clipped(s, first_us, until_us))]
    outside = [part for span in coverage.wrong for part in _without(span, first_us, until_us)]
    said = "The table is right there already"
    if inside:
        said = f"It makes right what is wrong now {spans_text(inside)}"
    return f"{said}, and leaves as it is what is {spans_text(outside)}" if outside else said


def state_between(coverage: Coverage, from_us: int, until_us: int) -> str:
    """Whether a table is right in `[from_us, until_us)`, in a word or two: right, late rows, ..."""
    found = (_clipped(span, from_us, until_us) for span in coverage.wrong)
    reasons = sorted({span.reason for span in found if span and span.reason})
    return ", ".join(reasons) or "right"


def _clipped(span: Span, from_us: int, until_us: int) -> Span | None:
    first, last = max(span.from_us, from_us), min(span.until_us, until_us)
    return Span(first, last, span.reason, missing=span.missing) if first < last else None


def _without(span: Span, from_us: int, until_us: int) -> list[Span]:
    parts = (
        (span.from_us, min(span.until_us, from_us)),
        (max(span.from_us, until_us), span.until_us),
    )
    return [Span(*part, span.reason, span.missing) for part in parts if part[0] < part[1]]
