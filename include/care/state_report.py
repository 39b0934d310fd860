"""What `./stateful inspect` prints: a stream's state as tables for a terminal, or as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise

from include.care.bucket_state import POINTS
from include.care.state_figures import QUANTILE_ERROR, Row, Skew, StateReport
from include.text_table import counted, cut, text_table, value_text

MOST_BUCKETS = 5
KEY_WIDTH, STATE_WIDTH = 32, 60
WIDE = 10_000
SECOND_US = 1_000_000
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def report_json(report: StateReport) -> str:
    """`report` as one JSON object; instants are ISO 8601 in UTC."""
    return json.dumps(asdict(report), default=_plain, indent=2)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else value_text(value)


def format_report(report: StateReport, is_wide: bool = False) -> str:
    """`report` as tables; keys and states cut to what fits a terminal, unless `is_wide`."""
    return "\n".join(_lines(report, is_wide))


def _lines(report: StateReport, is_wide: bool) -> Iterator[str]:
    settled = f"complete until {_instant(report.until)}" if report.until else "nothing settled yet"
    yield f"{report.stream}: state after batch {report.batch_id}, {settled} ({report.clock})"
    yield f"  {report.checkpoint}"
    yield ""
    yield from _summary(report)
    if report.keys:
        yield ""
        yield from _spreads(report)
        yield ""
        yield from _biggest_keys(report, is_wide)
    yield ""
    yield from _partitions(report)
    yield ""
    yield from _buckets(report)


def _summary(report: StateReport) -> Iterator[str]:
    empty = report.keys_without_state
    only = "a timeout only" if report.seen_values is None and not report.timers else "no state"
    yield f"keys      {report.keys:,}" + (f", {empty:,} of them with {only}" if empty else "")
    yield f"bytes     {report.bytes:,} (of keys and states, uncompressed, as Arrow holds them)"
    yield f"pending   {counted(report.pending_events, 'event')} in {counted(report.pending_bytes, 'byte')}"
    yield f"timeouts  {_timeouts(report)}"
    if report.timeouts.ttl is not None:
        yield f"ttl       {report.timeouts.ttl} after its last call a state is taken away"
    if report.timers is not None:
        keys = ", ".join(f"{name} of {count:,} keys" for name, count in report.timers.items())
        yield f"timers    {keys}"
    if report.seen_values is not None:
        yield f"seen      {report.seen_values:,} values by which events are known as duplicates"


def _timeouts(report: StateReport) -> str:
    timeouts = report.timeouts
    if timeouts.kind == "NoTimeout":
        return "none in this stream: a key stays until its function removes it"
    text = f"{counted(timeouts.keys_with, 'key')} with, {timeouts.keys_without:,} without"
    if timeouts.due:
        text += f"; {timeouts.due:,} due, which the next run fires"
    if timeouts.next_at and timeouts.last_at:
        text += f"; next {_instant(timeouts.next_at)}, last {_instant(timeouts.last_at)}"
    return text


def _spreads(report: StateReport) -> Iterator[str]:
    names = ("over keys", "least", "median", "90 %", "99 %", "most")
    rows: list[tuple[str, ...]] = []
    if report.bytes_per_key:
        rows.append(("bytes", *(f"{n:,}" for n in asdict(report.bytes_per_key).values())))
    if report.age_us:
        rows.append(("since last change", *map(_span, asdict(report.age_us).values())))
    yield from text_table(names, rows, left=(0,))
    if any(bucket["keys"] > POINTS for bucket in report.buckets):
        off = f"{QUANTILE_ERROR:.1%}"
        yield f"  (median, 90 % and 99 % are approximate: off by {off} of the keys at most)"


def _biggest_keys(report: StateReport, is_wide: bool) -> Iterator[str]:
    spread, shown = report.bytes_per_key, len(report.biggest_keys)
    if spread and spread.least == spread.most:
        yield f"{shown} of the keys, which are all of one size"
    else:
        yield f"the {shown} biggest keys"
    names = [report.key, "bytes", "bucket", "changed", "timeout at", "state"]
    rows = [
        [
            cut(value_text(row["key"]), WIDE if is_wide else KEY_WIDTH),
            f"{row['bytes']:,}",
            str(row["bucket"]),
            "" if row["age_us"] is None else f"{_span(row['age_us'])} ago",
            _instant(row["timeout_at"]) if row["timeout_at"] else "none",
            cut(row["state"] or "none", WIDE if is_wide else STATE_WIDTH),
        ]
        for row in report.biggest_keys
    ]
    if report.timeouts.kind == "NoTimeout":
        column = names.index("timeout at")
        for line in (names, *rows):
            del line[column]
    yield from text_table(names, rows, left=(0, len(names) - 1))


def _partitions(report: StateReport) -> Iterator[str]:
    yield f"{counted(len(report.partitions), 'state partition')}{_skew(report.partition_skew)}"
    yield from _parts(("partition", "buckets"), report.partitions)


def _buckets(report: StateReport) -> Iterator[str]:
    largest = sorted(report.buckets, key=lambda bucket: -bucket["bytes"])[:MOST_BUCKETS]
    heading = f"{counted(len(report.buckets), 'bucket')}{_skew(report.bucket_skew)}"
    yield heading if len(largest) == len(report.buckets) else f"{heading}; the largest:"
    yield from _parts(("bucket", "partition"), largest)


def _parts(names: tuple[str, str], parts: Sequence[Row]) -> list[str]:
    rows = [
        [str(part[name]) for name in names]
        + [f"{part[name]:,}" for name in ("keys", "bytes", "pending_events")]
        for part in parts
    ]
    return text_table((*names, "keys", "bytes", "pending"), rows)


def _skew(skew: Skew) -> str:
    if skew.keys is None or skew.bytes is None:
        return ", half of them or more without a key"
    return f", the largest {skew.keys:.1f} times the median by keys, {skew.bytes:.1f} by bytes"


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _span(us: int) -> str:
    """A length of time in its two largest units."""
    seconds = us // SECOND_US
    for (length, name), (part, part_name) in pairwise(UNITS):
        if seconds >= length:
            return f"{seconds // length} {name} {seconds % length // part} {part_name}"
    return f"{us / SECOND_US:.3f} s"
