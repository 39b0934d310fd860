"""What a stream's table is now, for scripts: until when it is complete, where it is right, and findings."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from include.coverage.findings import known_instant
from include.coverage.judge import Coverage, Span
from include.coverage.table_coverage import (
    TableCoverage,
    findings_on,
    rejected_coverage,
    table_coverage,
)
from include.lake.paths import Lake
from include.lake.stream_result import rejected_number
from include.plans.open_stream import OpenStream, open_stream
from include.savepoints.manifest import mapped_savepoint, rejects, until_of
from include.settings import Stream


def coverage_record(lake: Lake, stream: Stream) -> dict[str, Any]:
    """The table of `stream` by the code that ran last, and by the code of now.

    An instant of None is the beginning, or that nothing is complete; a generation of None, that it
    has not run, or that nothing is known of its runs.
    """
    opened = open_stream(lake, stream)
    judged = table_coverage(lake, stream)
    return {
        "stream": stream.name,
        "generation": opened.row["generation"] if opened.row else None,
        **verdict(judged),
        "by_code_of_now": _by_code_of_now(opened),
        "findings": [asdict(each) for each in findings_on(lake, stream, judged, row=opened.row)],
    }


def verdict(judged: TableCoverage) -> dict[str, Any]:
    """Of a table that was judged."""
    return {
        "complete_until": known_instant(judged.coverage.until_us),
        "is_right": judged.is_right and judged.coverage.live_is_right,
        "distrust": judged.doubt,
        **_wrong(judged.coverage),
    }


def _by_code_of_now(opened: OpenStream) -> dict[str, Any]:
    """What a run, a backfill and a reseed of now go by."""
    coverage = table_coverage(opened.lake, opened.declared, opened.identity).coverage
    return {
        **_wrong(coverage),
        "rejected_wrong": _rejected_wrong(opened),
        "states_mapped_as_of": _mapped_as_of(opened),
    }


def _wrong(coverage: Coverage) -> dict[str, Any]:
    return {"wrong": _spans(coverage.wrong), "live_is_right": coverage.live_is_right}


def _rejected_wrong(opened: OpenStream) -> list[dict[str, Any]] | None:
    """Where its rejected rows are not right. None where there are none, or the next run is to put
    back others."""
    is_ahead = rejected_number(opened.lake, opened.name) != opened.seen.record.rejected
    if not rejects(opened.identity.code) or is_ahead:
        return None
    return _spans(rejected_coverage(opened.lake, opened.row, opened.seen, opened.identity).wrong)


def _mapped_as_of(opened: OpenStream) -> datetime | None:
    """The instant of the states that `migrate_state` has mapped; None where none were."""
    base = mapped_savepoint(opened.identity.code)
    return None if base is None else until_of(base)


def _spans(spans: Iterable[Span]) -> list[dict[str, Any]]:
    return [
        {
            "from": known_instant(span.from_us),
            "until": known_instant(span.until_us),
            "reason": span.reason,
        }
        for span in spans
    ]
