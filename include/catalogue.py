"""The figures of streams and sources, with their limits, and all findings.

Charts, metrics, alerts and docs/findings.md are made from these lists.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from include.lake.ops import Finding, Severity
from include.text_table import bytes_text, counted, span_text

UNITS: dict[str, Callable[[float], str]] = {
    "bytes": bytes_text,
    "seconds": span_text,
    "times": "{:.2f}".format,
    "share": "{:.0%}".format,
}
REBUILD = "`./stateful rebuild NAME --apply`"
INSPECT = "`./stateful inspect NAME` shows what the state holds"


class Figure(NamedTuple):
    """A figure that is measured, and the finding made when it is above its limit; or a finding alone."""

    name: str  # an attribute of StreamLine, if it is a metric; else the finding
    unit: str  # "" of what is true or false
    subject: str  # stream, source or table
    help: str
    limit: str = ""  # a field of Limits, or of the entry
    finding: str = ""
    severity: Severity = "info"
    by: str = "check"  # the task that finds it
    do: str = "nothing"
    label: str = ""  # of a metric with a sample for each of several kinds

    def text(self, value: float) -> str:
        """Return a value with its unit, as text."""
        return UNITS.get(self.unit, "{:,.0f}".format)(value)

    def found(self, subject: str, detail: str, action: str | None = None, **more: Any) -> Finding:
        """Return the finding about `subject`; `action` replaces the general advice."""
        do = action or self.do.replace("NAME", subject).replace("SOURCE", subject)
        more = {"unit": self.unit or None} | more
        return Finding(
            finding=self.finding, severity=self.severity, detail=detail, action=do, **more
        )


def _verdict(
    severity: Severity, by: str, subject: str, name: str, what: str, do: str = "nothing"
) -> Figure:
    return Figure(name, "", subject, what, finding=name, severity=severity, by=by, do=do)


# fmt: off
PUT_BACK = f"put a copy of the checkpoint back that is not older, or make a new one from bronze: {REBUILD}"
# Figures by the names of Prometheus.
METRICS = {
    "until_lag_seconds": Figure("until_lag", "seconds", "stream", "From the instant a table is complete until to now", "fresh_within", "behind_promise", "warning", "alerts", "see whether runs of stream_NAME fail, wait or take too long; if not, to producers that have fallen silent, or give the source a `heartbeat_delay`"),
    "until_lag_promised_seconds": Figure("until_lag_promised", "seconds", "stream", "fresh_within, or two ticks of the schedule and the delay"),
    "until_timestamp_seconds": Figure("until", "timestamp_seconds", "stream", "The instant a table is complete until"),
    "rows_30d": Figure("rows", "rows", "stream", "Rows of the last 30 days, by kind; quarantined are those of the stream's source", label="kind"),
    "rows_pending": Figure("rows_pending", "rows", "stream", "Rows not yet complete after the newest run that succeeded", "pending_rows", "pending_rows", "warning", "check", "a `heartbeat_delay` for the source, if it falls silent; a shorter `watermark_delay`, if rows come less late"),
    "state_keys": Figure("state_keys", "keys", "stream", "Keys of the newest savepoint"),
    "state_bytes": Figure("state_bytes", "bytes", "stream", "Bytes of the state as last measured"),
    "checkpoint_bytes": Figure("checkpoint_bytes", "bytes", "stream", "Bytes of the checkpoint as last measured", "checkpoint_bytes", "checkpoint_bytes", "warning", "check", f"{INSPECT}: let the function remove() states or set timeouts; or raise the limit"),
    "run_seconds": Figure("run_seconds", "seconds", "stream", "How long the newest run took: the stream's, a rebuild, or an ingestion that failed"),
    "run_end_timestamp_seconds": Figure("run_end", "timestamp_seconds", "stream", "When that run ended"),
    "run_failed": Figure("run_failed", "", "stream", "1 if that run failed"),
    "findings": Figure("findings", "findings", "stream", "Open findings, by severity", label="severity"),
    "dates_not_right": Figure("dates_not_right", "days", "stream", "Of the last 30 days, those not right, by why", label="why"),
}
LIMITED = (
    Figure("rows_late", "rows", "stream", "late rows of a run", "late_rows", "many_late_rows", "warning", "check", "a longer `watermark_delay`, as the times of its late_rows say; or raise the limit"),
    Figure("rows_quarantined", "share", "source", "refused rows of a batch; a whole file always", "max_quarantined", "rows_quarantined", "warning", "ingest", "quarantine/SOURCE has each with its reason: mend what writes them, or the entry; then `./stateful reingest SOURCE` takes them in"),
    Figure("bucket_skew", "times", "stream", "rows of the fullest bucket of a batch, of the mean"),
    Figure("files", "files", "stream", "files of the checkpoint", "checkpoint_files", "checkpoint_files", "warning", "check", "lower `replay_versions`, which compacts more often; or raise the limit"),
    Figure("growth_bytes", "bytes", "stream", "growth of the checkpoint since the run before", "growth_bytes", "growth_bytes", "warning", "check", f"nothing after many new keys; if it goes on: {INSPECT}, keys without a timeout first"),
    Figure("skew", "times", "stream", "the largest state partition, of the median", "skew", "skew", "warning", "check", f"{INSPECT}: keep less per key, or have more buckets"),
    Figure("rss_bytes", "bytes", "stream", "memory that a run held", "rss_bytes", "rss_bytes", "warning", "check", "hold RocksDB to less by the entry's `rocksdb`; or raise the limit"),
    Figure("uncommitted_batches", "batches", "stream", "batches begun and not committed", "uncommitted_batches", "uncommitted_batches", "warning", "check", "the next run repeats it; if it fails again, ops/runs says why"),
    Figure("replay_versions", "versions", "stream", "change logs that a start replays: compacted after the run", "replay_versions", "replay_versions"),
)
FOUND = (
    _verdict("error", "alerts", "stream", "run_failed", "a task of the stream's Dag failed", "the task's log has the error and what to do; clearing the task is always safe"),
    _verdict("error", "check", "stream", "table_changed", "the table is not what was recorded of it: lost, put back, changed by others", f"put it back, or {REBUILD}"),
    _verdict("error", "check", "source", "bronze_changed", "bronze is not what was ingested: older, or changed by others", "put it back, or `./stateful ingest SOURCE --from-scratch --apply`"),
    _verdict("error", "check", "source", "erasure_unfinished", "an erasure of a key was begun and is not finished", "`./stateful erase SOURCE KEY --apply`, with the same key"),
    _verdict("error", "check", "stream", "status_unreadable", "the record or bronze cannot be read", f"mend what it names, or {REBUILD}"),
    _verdict("error", "run_stream", "stream", "data_check_failed", "rows do not meet a check of `checks=`, so a run, restate or rebuild has published none", "mend the function, or the check (with severity=\"warning\" such rows pass, with a finding), and go on"),
    _verdict("error", "run_stream", "stream", "rows_do_not_add_up", "rows read are not rows folded, late and pending", "report it: a bug"),
    _verdict("error", "check", "stream", "checkpoint_of_other_times", "it is gone, or older than the table that was written under it", PUT_BACK),
    _verdict("error", "check", "stream", "checkpoint_unreadable", "the next run fails on its files", PUT_BACK),
    _verdict("error", "table_maintenance", "table", "files_lost", "files of a table are lost or damaged (the task is green: other tables are maintained)", "put them back from a copy, or as it says"),
    _verdict("warning", "check", "stream", "table_not_right", "other code, or nothing is recorded of a part", f"{REBUILD}, or restate the dates"),
    _verdict("warning", "check", "stream", "late_rows_not_restated", "late rows are in bronze and not in the table", "backfill the dates it names"),
    _verdict("warning", "check", "stream", "upstream_not_right", "a table that it is made of is not right, or has changed since", "what the finding names"),
    _verdict("warning", "check", "stream", "state_lacks_rows", "the dates are restated, the live state is not", f"{REBUILD}, or a backfill with rebuild"),
    _verdict("warning", "run_stream", "stream", "late_rows", "rows behind the watermark", "see late_rows_not_restated"),
    _verdict("warning", "run_stream", "stream", "rows_dead_lettered", "the function failed for rows, which are in dead_letters/NAME", "look at dead_letters/NAME and mend the function; then `./stateful rebuild NAME --full-refresh --apply` takes them in"),
    _verdict("warning", "run_stream", "stream", "data_check_warning", "rows that are in the table do not meet a check of `checks=`", "look at the rows that it names; mend the function or the check"),
    _verdict("warning", "run_stream", "stream", "code_changed", "the state is now of two codes", "`./stateful rebuild NAME --full-refresh --apply`"),
    _verdict("warning", "ingest", "source", "watermark_jumped", "one file moved the watermark far beyond all other rows", "if a clock is wrong, set it right, then `./stateful set-watermark SOURCE --to TO` shows what it would do; of a load of history nothing"),
    _verdict("warning", "ingest", "source", "heartbeat_bounded", "a heartbeat would have gone further than `max_clock_step`", "if the machine's clock is ahead, set it right; if runs of SOURCE are further apart, raise its `max_clock_step`"),
    _verdict("warning", "ingest", "source", "group_behind", "one group holds the watermark back", "see to that producer; without rows of it for `idle_after` the watermark goes on"),
    _verdict("warning", "ingest", "source", "rows_skipped", "`ingest --accept-loss` passed over rows that are gone", "if the producers still have them, let them send them again; `./stateful ingest SOURCE --accept-loss --apply` closes this"),
    _verdict("warning", "ingest", "source", "versions_ignored", "the Delta source deleted or updated rows", "ingest the table again under another source; or `./stateful ingest SOURCE --accept-loss --apply`"),
    _verdict("warning", "restate", "stream", "savepoint_damaged", "a savepoint cannot be read; another takes its place", "nothing, if you know of it; else look after the lake's storage"),
    _verdict("warning", "table_maintenance", "table", "reader_behind", "a stream is near the end of its table's log", "run the stream before that"),
    _verdict("warning", "table_maintenance", "table", "reader_cut_off", "the log it would go on with is gone", f"put an older copy of the log's files back, or {REBUILD}"),
    _verdict("warning", "table_maintenance", "table", "vacuum_refused", "a reader still needs old files", "run that stream, or delete it"),
    _verdict("warning", "table_maintenance", "table", "table_unreadable", "a table cannot be read", "what it names"),
    _verdict("info", "run_stream", "stream", "rows_before_initial_state", "rows before the initial state's as_of, which stands for them: they are not folded"),
    _verdict("info", "ingest", "source", "loss_accepted", "somebody has accepted what was lost until then"),
    _verdict("info", "ingest", "source", "tombstones_skipped", "messages without a value"),
    _verdict("info", "ingest", "source", "unknown_field", "producers send a field that is not declared", "declare it as a field of SOURCE, with required=False, and streams read it of these rows, too; or pass it over with ignored="),
    _verdict("info", "tune_rocksdb", "stream", "memory_tried", "RocksDB has another memory, on trial"),
    _verdict("info", "tune_rocksdb", "stream", "memory_kept", "the trial has done what it was made for"),
    _verdict("info", "tune_rocksdb", "stream", "memory_rolled_back", "it has not, or a run has failed"),
    _verdict("info", "check", "stream", "written_while_measured", "a job was writing: the next check looks again"),
)
# fmt: on
FIGURES = {figure.name: figure for figure in (*METRICS.values(), *LIMITED)}
FINDINGS = {
    figure.finding: figure for figure in (*METRICS.values(), *LIMITED, *FOUND) if figure.finding
}


def findings_of_run(stream: str, batches: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return the findings of a run that committed these rows of `ops/batches`."""
    found = []
    if late := sum(batch["rows_late"] for batch in batches):
        late_rows = FINDINGS["late_rows"].found(
            stream,
            "behind the watermark when they were ingested: in bronze, not in the table. "
            "docs/operate.md, Runs, says what late is",
            count=late,
            event_time_from=min(b["late_from"] for b in batches if b["late_from"]),
            event_time_to=max(b["late_to"] for b in batches if b["late_to"]),
        )
        found.append(late_rows)
    if before := sum(batch["rows_before_initial_state"] for batch in batches):
        figure = FINDINGS["rows_before_initial_state"]
        found.append(figure.found(stream, figure.help, count=before))
    return found


def dead_letters_finding(
    stream: str, events: int, timeouts: int, first: datetime, last: datetime
) -> Finding:
    """Return the finding of at least one dead letter."""
    return FINDINGS["rows_dead_lettered"].found(
        stream,
        f"the function failed for {counted(events, 'event')} and {counted(timeouts, 'timeout')}: "
        f"they are in dead_letters/{stream} with the error, and not in the table",
        count=events + timeouts,
        event_time_from=first,
        event_time_to=last,
    )
