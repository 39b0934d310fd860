"""A stream's Dag run: its interval, the extra of its Asset event, its note."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from include.registry import descendants_of
from include.settings import Stream
from include.steps import RunPath, StreamRun
from include.stream_definition import load_definition

log = logging.getLogger(__name__)

# The parameter, and the name in an event's extra.
DOWNSTREAM = "downstream"


def is_backfill(dag_run: Any) -> bool:
    """True by the type: *All Runs* turns a scheduled run into a backfill, and keeps its run id."""
    return bool(dag_run.run_type == "backfill")


def interval_of(dag_run: Any, schedule: str) -> tuple[datetime | None, datetime | None]:
    """The data interval; of a backfill the one that it restates, by the schedule of now."""
    if not is_backfill(dag_run):
        return dag_run.data_interval_start, dag_run.data_interval_end
    # *All Runs* leaves the data interval as it was made, by an earlier schedule or by hand. Planning reads a lake, which needs a second of imports: not at every parse of the Dags.
    from include.stream.restate_plan import next_tick

    return dag_run.logical_date, next_tick(schedule, dag_run.logical_date)


def is_downstream(dag_run: Any, params: Mapping[str, Any]) -> bool:
    """True if the run is asked to mend what is behind a table: by its parameter, or by the event of one that it reads."""
    events = dag_run.consumed_asset_events
    return bool(params[DOWNSTREAM] or any((event.extra or {}).get(DOWNSTREAM) for event in events))


def path_of(dag_run: Any, params: Mapping[str, Any]) -> RunPath:
    if is_backfill(dag_run):
        return "backfill"
    return "downstream" if is_downstream(dag_run, params) else "live"


def task_states(ti: Any, run_id: str) -> dict[str, str | None]:
    """The states of the tasks of a run of the same Dag."""
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[run_id])
    return dict(states.get(run_id, {}))


def failed_tasks(ti: Any, run_id: str) -> list[str]:
    """The tasks of a run of the same Dag that have failed by now."""
    return [task for task, state in task_states(ti, run_id).items() if state == "failed"]


def event_extra(
    run: StreamRun, states: Mapping[str, str | None], downstream: bool
) -> dict[str, Any] | None:
    """The extra of this Dag run's Asset event; None if nothing has changed, or its job has failed.

    `downstream`: who reads the table is told to mend theirs, whether or not it has changed.
    """
    from include.observe.asset_event import asset_extra, complete_extra, restate_extra

    if states.get("restate_interval" if run.path == "backfill" else "run_stream") == "failed":
        return None
    of = (run.lake, run.stream, run.dag_run_id or "")
    extra = None if run.path == "live" else restate_extra(*of)
    if run.path != "backfill" and (drained := asset_extra(*of)):
        extra = (extra or {}) | drained
    if downstream and states.get("rebuild") in ("success", "skipped") and _is_last(run):
        extra = (extra or complete_extra(run.lake, run.stream)) | {DOWNSTREAM: True}
    return extra


def _is_last(run: StreamRun) -> bool:
    """True if streams read the table, and no more runs of the backfill are queued."""
    from include.stream.restate_plan import runs_behind

    queued = 0
    if run.path == "backfill" and run.start is not None:
        queued = runs_behind(run.lake, run.stream, run.start, run.queued)
    return not queued and bool(descendants_of(run.stream.name))


# The XCom that the plugin reads.
TASK, KEY = "publish", "note"
OURS = "Backfill: "
# PostgreSQL refuses a longer note, in the transaction that ends the run: the scheduler would end
# with it, and again at each start.
MOST_CHARACTERS = 1_000


def run_note(lake: str, stream: Stream, dag_run: Any, extra: Mapping[str, Any] | None) -> str:
    """Return what a backfill run has changed, as text; our plugin makes it the Dag run's note."""
    from include.lake.paths import open_lake
    from include.stream.stream_status import stream_status

    changed = extra or {}
    edges = map(_minute, changed.get("interval") or interval_of(dag_run, stream.schedule))
    parts = [f"{' until '.join(edges)} UTC: {_changed(stream, changed)}"]
    if "rebuilt_generation" in changed:
        parts.append(f"rebuilt: the live state is generation {changed['rebuilt_generation']}")
    found = stream_status(open_lake(lake), stream).findings
    parts += [] if found else ["the table is right now"]
    parts += [f"still {each.finding}: {each.detail}. Next: {each.action}" for each in found]
    note = (OURS + "\n\n".join(parts)).replace("\0", "?")
    log.info("%s", note)
    # The tab *State* has the findings in full.
    return note if len(note) <= MOST_CHARACTERS else f"{note[: MOST_CHARACTERS - 3]}..."


def _minute(at: object) -> str:
    return str(at)[:16].replace("T", " ")


def _changed(stream: Stream, extra: Mapping[str, Any]) -> str:
    if load_definition(stream).fold.output_mode == "update":
        return "the table shows the live state, which a backfill changes by rebuild alone"
    if "interval" not in extra:
        return "the table was right there"
    read, before, after = (
        f"{extra[f'rows_{name}'] or 0:,}" for name in ("read", "before", "after")
    )
    when = _minute(extra["ended_at"])
    return f"on {when} {before} rows of the table became {after}; {read} rows of bronze read"
