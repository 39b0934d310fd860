"""All findings there are: how grave, who looks, what each means and what to do, for docs/findings.md.

A finding's own row says more, with names, figures and the command to enter.
"""

import sys
from collections.abc import Iterator
from typing import Literal, NamedTuple

from include.lake.findings import Severity

By = Literal[
    "ingest",
    "run_stream",
    "check",
    "compact_state",
    "tuner",
    "table_maintenance",
    "recompute",
    "alerts",
]


class Known(NamedTuple):
    """One finding, for people."""

    severity: Severity
    by: By
    what: str
    action: str


def _error(by: By, what: str, action: str) -> Known:
    return Known("error", by, what, action=action)


def _warning(by: By, what: str, action: str) -> Known:
    return Known("warning", by, what, action=action)


def _info(by: By, what: str, action: str = "nothing") -> Known:
    return Known("info", by, what, action=action)


SET_ASIDE = "`./stateful set-aside`, as it says"
PUT_BACK = "put a copy of the checkpoint back, or `./stateful reseed NAME --apply`"
KNOWN: dict[str, Known] = {
    # Whether the promise is kept.
    "run_failed": _error(
        "alerts", "a task of the stream's Dag failed", "the task's log; then clear the task"
    ),
    "behind_promise": _warning(
        "alerts",
        "the table is further behind than `fresh_within`",
        "see to the runs, or to producers that have fallen silent",
    ),
    # The table.
    "table_changed": _error(
        "check",
        "the table is not what was recorded of it: lost, put back, changed by others",
        "put it back, or `./stateful reseed NAME --apply`",
    ),
    "bronze_changed": _error(
        "check",
        "bronze is not what was ingested: older, or changed by others",
        "put it back, or `./stateful set-aside bronze/SOURCE --apply`",
    ),
    "erasure_unfinished": _error(
        "check",
        "an erasure of a key was begun and is not finished",
        "`./stateful erase SOURCE KEY --apply`, with the same key",
    ),
    "table_not_right": _warning(
        "check",
        "other code, another bronze, or nothing is recorded of a part",
        "`./stateful reseed NAME --apply`, or recompute the dates",
    ),
    "late_rows_not_recomputed": _warning(
        "check", "late rows are in bronze and not in the table", "backfill the dates it names"
    ),
    "state_lacks_rows": _warning(
        "check",
        "the dates are recomputed, the live state is not",
        "`./stateful reseed NAME --apply`, or a backfill with promote",
    ),
    "coverage_unreadable": _error(
        "check", "the record or bronze cannot be read", "mend what it names"
    ),
    # Rows of a run.
    "late_rows": _warning(
        "run_stream", "rows behind the watermark", "see late_rows_not_recomputed"
    ),
    "many_late_rows": _warning(
        "check", "more than `limits.late_rows` in a run", "a longer watermark_delay"
    ),
    "pending_rows": _warning(
        "check", "more than `limits.pending_rows` are not settled", "a clock_grace for the source"
    ),
    "rows_rejected": _warning(
        "run_stream",
        "the function failed for rows, which are in rejected/NAME",
        "mend it; `./stateful reseed NAME --recompute --apply`",
    ),
    "key_rejected_again": _warning(
        "run_stream", "it fails for one key again and again", "look at the key's rejected rows"
    ),
    "data_check_failed": _error(
        "run_stream",
        "rows do not meet a check of `checks=`, so a run, recompute or reseed has published none",
        "mend the function, or the check; the next run goes on",
    ),
    "data_check_warning": _warning(
        "run_stream",
        "rows that are in the table do not meet a check of `checks=`",
        "look at the rows that it names",
    ),
    "rows_do_not_add_up": _error(
        "run_stream", "rows read are not rows folded, late and pending", "report it: a bug"
    ),
    "code_changed": _warning(
        "run_stream",
        "the state is now of two codes",
        "`./stateful reseed NAME --recompute --apply`",
    ),
    "rows_before_initial_state": _info("run_stream", "rows that the initial state stands for"),
    "kept_without_timeout": _info(
        "run_stream", "states that only a new event wakes", "a timeout, unless that is meant"
    ),
    # The source.
    "watermark_jumped": _warning(
        "ingest",
        "one file moved the watermark far beyond all other rows",
        "`./stateful repair-clock SOURCE --to TO`, if a clock was wrong",
    ),
    "rows_quarantined": _warning(
        "ingest",
        "more than `max_quarantined` of a batch's rows were refused, or a whole file",
        "mend them, or the entry; `./stateful reingest SOURCE`",
    ),
    "clock_row_bounded": _warning(
        "ingest",
        "a clock row would have gone further than `max_clock_step`",
        "set the machine's clock right",
    ),
    "group_behind": _warning(
        "ingest", "one group holds the watermark back", "see to that producer"
    ),
    "rows_skipped": _warning(
        "ingest",
        "`ingest --accept-loss` passed over rows that are gone",
        "as it says: let producers send them again, or not",
    ),
    "versions_ignored": _warning(
        "ingest", "the Delta source deleted or updated rows", "take it in anew, if that matters"
    ),
    "tombstones_skipped": _info("ingest", "messages without a value"),
    "unknown_field": _info("ingest", "producers send a field that is not declared", "declare it"),
    # The checkpoint.
    "checkpoint_missing": _error("check", "it is gone, and batches are recorded", PUT_BACK),
    "checkpoint_rewound": _error("check", "it is older than what is recorded", PUT_BACK),
    "checkpoint_unreadable": _error("check", "it cannot be read", "rights, disk, path"),
    "missing_files": _error("check", "the next run cannot start without files", PUT_BACK),
    "unreadable_files": _error("check", "the next run fails on files", PUT_BACK),
    "blocking_files": _error("check", "the next run stumbles over names", SET_ASIDE),
    "damaged_snapshot": _warning("check", "a snapshot is damaged; an older one serves", "the disk"),
    "unknown_files": _warning("check", "files that Spark does not write", SET_ASIDE),
    "left_over_files": _info("check", "left by a run that was killed"),
    "no_checkpoint": _info("check", "there is none yet"),
    "state_changed": _error(
        "compact_state", "a compaction came to another state than before it", PUT_BACK
    ),
    "written_while_measured": _info("check", "a job was writing: the next check looks again"),
    "savepoint_damaged": _warning(
        "recompute", "a savepoint cannot be read; another takes its place", "the lake's storage"
    ),
    # Limits.
    "checkpoint_bytes": _warning(
        "check", "above `limits.checkpoint_bytes`", "remove() states, timeouts; or raise it"
    ),
    "checkpoint_files": _warning(
        "check", "above `limits.checkpoint_files`", "compact more often; or raise it"
    ),
    "growth_bytes": _warning(
        "check", "above `limits.growth_bytes` since the run before", "keys without a timeout"
    ),
    "skew": _warning(
        "check", "a state partition is above `limits.skew` medians", "keep less per key"
    ),
    "rss_bytes": _warning(
        "check", "a run held more memory than `limits.rss_bytes`", "the entry's `rocksdb`"
    ),
    "uncommitted_batches": _warning(
        "check", "a batch was begun and not committed", "the next run repeats it"
    ),
    "replay_versions": _info("check", "above `limits.replay_versions`: compacted after the run"),
    "garbage_share": _info("check", "above `limits.garbage_share`: compacted after the run"),
    "trial_rolled_back": _info("tuner", "other memory for RocksDB was tried, and taken back"),
    # Tables, once a day.
    "files_lost": _error(
        "table_maintenance",
        "files of a table are lost or damaged (the task is green: other tables are cared for)",
        "put them back from a copy, or as it says",
    ),
    "reader_behind": _warning(
        "table_maintenance", "a stream is near the end of its table's log", "run it"
    ),
    "reader_cut_off": _warning(
        "table_maintenance", "the log it would go on with is gone", "reseed, or put the log back"
    ),
    "vacuum_refused": _warning(
        "table_maintenance", "a reader still needs old files", "run that stream, or delete it"
    ),
    "optimize_above_budget": _warning(
        "table_maintenance", "files that no day's budget can join", "raise table_bytes for a day"
    ),
    "table_unreadable": _warning(
        "table_maintenance", "a table cannot be read, or is gone", "what it names"
    ),
}

PAGE = "docs/findings.md"
HEAD = """# Findings

Made by `.venv/bin/python -m include.alerts.known`. A finding is a row of `ops/findings`, with figures, and the command to enter. It
is on the [page](page.md) of its stream, in the log of the task that found it, and counted in the metric `stateful_lake_findings`."""
HEARD: dict[Severity, str] = {
    "error": "Besides, the task that finds it is red, and people are told by an [alert](alerts.md).",
    "warning": "Besides, people are told by an [alert](alerts.md); the Dag stays green.",
    "info": "Nobody is told: it is there for who looks.",
}


def findings_page() -> str:
    """The whole page, as Markdown."""
    return "\n\n".join([HEAD, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for severity in HEARD:
        head = f"## {severity.capitalize()}\n\n{HEARD[severity]}\n\n"
        head += "| finding | found by | what it is | what to do |\n|---|---|---|---|\n"
        yield head + "\n".join(
            f"| `{name}` | {known.by} | {known.what} | {known.action} |"
            for name, known in KNOWN.items()
            if known.severity == severity
        )


if __name__ == "__main__":
    sys.stdout.write(findings_page())
