"""A stream's Dag run: its interval, the extra of its Asset event, its note."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from include.settings import Stream
from include.stream_definition import load_definition

log = logging.getLogger(__name__)


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


def task_states(ti: Any, run_id: str) -> dict[str, str | None]:
    """The states of the tasks of a run of the same Dag."""
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[run_id])
    return dict(states.get(run_id, {}))


def failed_tasks(ti: Any, run_id: str) -> list[str]:
    """The tasks of a run of the same Dag that have failed by now."""
    return [task for task, state in task_states(ti, run_id).items() if state == "failed"]


def event_extra(
    lake: str, stream: Stream, dag_run: Any, states: Mapping[str, str | None]
) -> dict[str, Any] | None:
    """The extra of this Dag run's Asset event; None if nothing has changed, or its job has failed."""
    from include.lake.paths import open_lake
    from include.observe.asset_event import asset_extra, restate_extra

    is_of_interval = is_backfill(dag_run)
    if states.get("restate_interval" if is_of_interval else "run_stream") == "failed":
        return None
    extra_of = restate_extra if is_of_interval else asset_extra
    return extra_of(open_lake(lake), stream, dag_run.run_id)


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
