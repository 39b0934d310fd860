"""Maintenance of all tables, once a day: join small files (OPTIMIZE), delete old ones (VACUUM).

| task | what it does | skipped when |
|---|---|---|
| `plan_tables` | looks at all tables; the plan with its reasons into the log, findings into `ops/findings` | |
| `maintain_source_<source>` | `bronze/<source>` and `quarantine/<source>` | both need nothing |
| `maintain_stream_<stream>` | `tables/<stream>` and `dead_letters/<stream>` | both need nothing |
| `maintain_ops` | the `ops` tables and ingest logs, and expired checkpoints that a rebuild has replaced, without a JVM | nothing needs it |
| `alert` | tells the notifiers of `include/streams/notify.py` which findings of tables have opened and closed | none has |

Each Spark task takes the pool of its source or stream, so that nothing else writes to its tables meanwhile; and they run one after the
other. docs/operate.md says how long files are kept.

When it is red: the task log has the job's error. Retrying or clearing a task is always safe: it does what is still to be done.
"""

import logging
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from dags.spark_task import SparkJobOperator, skip
from include.airflow.alerts import tell
from include.airflow.assets import ops_asset, source_pool, stream_pool
from include.registry import all_sources, declared
from include.settings import TABLE_MAINTENANCE, default_lake

log = logging.getLogger(__name__)

NAME = "table_maintenance"
STREAMS = declared().streams

# Each Spark task, with its tables and the pool of all jobs that write to these.
SPARK_TASKS = {
    f"maintain_source_{source.name}": (
        [f"bronze/{source.name}", f"quarantine/{source.name}"],
        source_pool(source.name),
    )
    for source in all_sources()
} | {
    f"maintain_stream_{stream.name}": (
        [f"tables/{stream.name}", f"dead_letters/{stream.name}"],
        stream_pool(stream),
    )
    for stream in STREAMS
}

# Reading the lake needs pyarrow and delta-rs, a second of imports: only in the functions
# that tasks run, not at every parse of this file.


@task.branch(retries=2)
def plan_tables(lake: str, ti: Any) -> list[str]:
    """Return the tasks that have something to do; a skipped one costs no process."""
    from include.lake.paths import open_lake
    from include.maintain import table_maintenance as maintenance
    from include.observe.alerts import looks_at_tables

    opened, now = open_lake(lake), datetime.now(UTC)
    plans = maintenance.plan_table_maintenance(opened, TABLE_MAINTENANCE, now)
    maintenance.record_plan_findings(opened, plans)
    ti.xcom_push("looks", [asdict(look) for look in looks_at_tables(plans)])
    old = maintenance.format_old_generations(opened, STREAMS, now)
    log.info("%s\n%s", maintenance.format_plan(plans), old)
    needy = {plan.table.name: plan.table.lease for plan in plans if plan.needs_maintenance}
    chosen = [
        name for name, (tables, _) in SPARK_TASKS.items() if not needy.keys().isdisjoint(tables)
    ]
    chosen += ["maintain_ops"] * (bool(old) or None in needy.values())
    return [*chosen, "alert"]


@task(retries=2)
def alert(ti: Any, asset_state_store: Any, **context: Any) -> None:
    """Notify of findings of tables that opened or closed; the Asset of `ops` stores what is known."""
    from include.observe.alerts import Look

    looks = [Look(**look) for look in ti.xcom_pull("plan_tables", key="looks")]
    stores = {look.subject: asset_state_store for look in looks}
    if tell(NAME, looks, datetime.now(UTC), stores, context | {"ti": ti}) is None:
        skip("nothing has opened or closed")


@task(retries=2)
def maintain_ops(lake: str) -> None:
    from include.lake.paths import open_lake
    from include.maintain import table_maintenance as maintenance

    maintenance.maintain_ops(open_lake(lake), STREAMS)


with DAG(
    dag_id=NAME,
    description="OPTIMIZE and VACUUM of what needs it",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable(TABLE_MAINTENANCE.schedule, timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # the next day makes up for one that was missed
    max_active_runs=1,
    max_active_tasks=1,
    default_args={"owner": "data-platform", "execution_timeout": TABLE_MAINTENANCE.timeout},
    tags=["maintenance"],
):
    root = default_lake()
    planned = plan_tables(root)
    spark_tasks = [
        SparkJobOperator(
            job="maintain_table",
            arguments=["--tables", *tables, "--lake", root],
            task_id=name,
            pool=pool,
        )
        for name, (tables, pool) in SPARK_TASKS.items()
    ]
    planned >> [*spark_tasks, maintain_ops(root), alert.override(inlets=[ops_asset(root)])()]
