"""Optimize and vacuum tables that Spark writes, as today's plan says.

    spark-submit spark_jobs/maintain_table.py --tables bronze/signals quarantine/signals --lake lake

Each table under the lease of its source or stream: where another job holds that, the table is
left for the next day. No row changes, so streams and their checks go on as if nothing had been.
"""

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from include.job import recorded_run
from include.lake.lease import LeaseTakenError, hold_lease
from include.lake.paths import Lake, open_lake
from include.maintain.table_maintenance import (
    MaintainedTable,
    carry_out,
    maintained_tables,
    plan_of,
)
from include.settings import TABLE_MAINTENANCE, TableMaintenance
from spark_jobs.job import exit_with_main, spark_session
from spark_jobs.tables.product import session_settings

log = logging.getLogger("job.maintain_table")

JOB = "maintain_table"
OPTIMIZE = "spark.databricks.delta.optimize"


def maintain(
    spark: SparkSession,
    lake: Lake,
    tables: Sequence[MaintainedTable],
    limits: TableMaintenance,
    dag_run_id: str | None = None,
) -> None:
    """Plan and carry out the maintenance of each table; a table in use is left as it is."""
    for table in tables:
        try:
            with hold_lease(lake, str(table.lease)):
                _maintain(spark, lake, table, limits=limits, dag_run_id=dag_run_id)
        except LeaseTakenError as error:
            log.info("%s is left for the next day: %s", table.name, error)


def _maintain(
    spark: SparkSession,
    lake: Lake,
    table: MaintainedTable,
    limits: TableMaintenance,
    dag_run_id: str | None,
) -> None:
    plan = plan_of(lake, table, limits, datetime.now(UTC))
    log.info("%s: %s", table.name, "; ".join(plan.reasons) or "nothing to do")
    if not plan.needs_maintenance:
        return
    with recorded_run(lake, JOB, table.name, dag_run_id=dag_run_id):
        carry_out(
            lake,
            plan,
            optimize=partial(optimize, spark, table.path, limits),
            vacuum=partial(vacuum, spark, table.path),
        )


def optimize(spark: SparkSession, path: str, limits: TableMaintenance) -> None:
    """Join the small files of each partition in one commit."""
    # By Delta's own sizes of 1 GiB a smaller partition would be rewritten every day.
    sizes = {
        f"{OPTIMIZE}.minFileSize": str(limits.small_file_bytes),
        f"{OPTIMIZE}.maxFileSize": str(limits.target_file_bytes),
    }
    with session_settings(spark, sizes):
        DeltaTable.forPath(spark, path).optimize().executeCompaction()


def vacuum(spark: SparkSession, path: str) -> None:
    """Delete the files that no version within the table's retention needs."""
    # Delta lists the folder in as many tasks: with Spark's 10,000 a table of ten files took 32 s
    # of CPU, with 8 it took 3 (2 cores).
    tasks = str(4 * spark.sparkContext.defaultParallelism)
    listing = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": tasks}
    with session_settings(spark, listing):
        DeltaTable.forPath(spark, path).vacuum()


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="+", required=True, help="such as bronze/signals")
    parser.add_argument("--lake", required=True, help="the lake's folder or URI")
    parser.add_argument("--dag-run-id", help="the Airflow Dag run that started this, for ops/runs")
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    lake = open_lake(args.lake)
    tables = [table for table in maintained_tables(lake) if table.name in args.tables]
    maintain(spark_session(JOB), lake, tables, TABLE_MAINTENANCE, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
