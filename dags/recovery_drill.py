"""Proof, once a month, that a stream can be restored: on a copy, which is deleted afterwards.

| task | what it does | skipped when |
|---|---|---|
| `copy_<stream>` | copies what a restore needs to `drills/<stream>` in the lake, and deletes the newest state from the copy's checkpoint | another stream was asked for; or there is no savepoint with rows of the table after it, or nothing right to compare |
| `restore_<stream>` | the documented command, `./stateful reseed NAME --until UNTIL --apply`, with the copy as its lake: replays from the savepoint until where the table is right | nothing was copied |
| `compare_<stream>` | compares the copy's table with the rows that were copied; one row in `ops/runs` says how many were compared, from which savepoint, in how many minutes, and whether all are equal; deletes the copy | nothing was copied |

Streams come one after the other. The copy is of one stream at a time, and of its source's bronze:
so much room the lake must have. Of the lake itself a drill writes that row, and nothing else.

`stream` (empty: each) chooses one; `./stateful drill NAME` does the same by hand.

When it is red: a red `copy` found a job that was writing, and is tried again twice; clear it with
all that follows. A red `compare` says that the restore failed or came to other rows. Until the next
drill has succeeded, the finding `drill_failed` says so after each run of the stream.
"""

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param, task
from airflow.sdk.exceptions import AirflowFailException

from dags.spark_task import skip, spark_task
from include.airflow.pools import stream_pool
from include.limits import DRILL_SCHEDULE
from include.registry import loadable_streams, stream_named
from include.settings import Stream, default_lake

log = logging.getLogger(__name__)

STREAMS = loadable_streams()
PARAMS = {
    "stream": Param(
        None,
        type=["null", "string"],
        enum=[None, *(stream.name for stream in STREAMS)],
        description="The stream that is restored on a copy. Empty: each.",
    )
}
TIMEOUT = timedelta(hours=6)

# Reading the lake needs pyarrow and delta-rs, a second of imports: only in the functions
# that tasks run, not at every parse of this file.


@task(retries=2, retry_delay=timedelta(minutes=5))
def copy(name: str, lake: str, params: Any, dag_run: Any) -> None:
    from include.care.recovery_drill import NoDrillError, begin_drill
    from include.lake.paths import open_lake

    if params["stream"] not in (None, name):
        skip(f"the drill is of {params['stream']}")
    try:
        log.info("%s", begin_drill(open_lake(lake), stream_named(name), dag_run.run_id).text())
    except NoDrillError as error:
        skip(str(error))


def add_arguments(context: Any, lake: str, stream: Stream) -> None:
    """Until when, as the copy says: what has been copied is known only now."""
    from include.care.recovery_drill import begun_drill
    from include.lake.paths import open_lake

    submit = context["task"]
    arguments = begun_drill(open_lake(lake), stream).arguments
    submit.application_args = [*submit.application_args, *arguments]


# After a restore that failed, too: that is what the drill has shown.
@task(trigger_rule="none_skipped")
def compare(name: str, lake: str, dag_run: Any) -> None:
    from include.care.drill_result import DrillError, finish_drill
    from include.lake.paths import open_lake

    try:
        log.info("%s", finish_drill(open_lake(lake), stream_named(name), dag_run.run_id))
    except DrillError as error:
        raise AirflowFailException(str(error)) from error


def restore(stream: Stream, lake: str) -> Any:
    return spark_task(
        "reseed_stream",
        ["--stream", stream.name, "--lake", f"{lake.rstrip('/')}/drills/{stream.name}"],
        stream,
        task_id=f"restore_{stream.name}",
        name=f"restore_{stream.name}",
        pre_execute=partial(add_arguments, lake=lake, stream=stream),
    )


def drill(stream: Stream, lake: str) -> None:
    name = stream.name
    # In the stream's pool: what is copied must not change meanwhile.
    copied = copy.override(task_id=f"copy_{name}", pool=stream_pool(stream))(name, lake)
    copied >> restore(stream, lake) >> compare.override(task_id=f"compare_{name}")(name, lake)


with DAG(
    dag_id="recovery_drill",
    description="Restores a copy of each stream, and compares",
    doc_md=__doc__,
    # Not at once when the Dag is first seen: next month.
    schedule=CronTriggerTimetable(DRILL_SCHEDULE, timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,
    params=PARAMS,
    default_args={"owner": "data-platform", "execution_timeout": TIMEOUT},
    tags=["maintenance"],
):
    for each in STREAMS:
        drill(each, default_lake())
