"""A shell over a lake: a session, `read_state`, and a view for each table, named as that with _ for
/: user_counts, bronze_signals, ops_runs."""

import sys
from argparse import ArgumentParser

from pyspark.sql import DataFrame, SparkSession

from include.lake.generations import read_generations
from include.lake.paths import Lake, open_lake
from include.maintain.table_maintenance import maintained_tables
from include.registry import stream_named
from include.stream.checkpoint import committed_batch
from include.stream_definition import load_definition
from spark_jobs.engines.state_rows import read_states
from spark_jobs.job import spark_session


def make_views(spark: SparkSession, lake: Lake) -> list[str]:
    """Make a temporary view of each table that is there, and return their names."""
    names = []
    for table in maintained_tables(lake):
        if lake.is_delta_table(table.path):
            name = table.name.removeprefix("tables/").replace("/", "_").replace("-", "_")
            spark.read.format("delta").load(table.path).createOrReplaceTempView(name)
            names.append(name)
    return names


def state_of(spark: SparkSession, lake: Lake, name: str) -> DataFrame:
    """The state of a stream after its newest committed batch, a row for each key."""
    fold = load_definition(stream_named(name)).fold
    batch = committed_batch(lake, read_generations(lake, name))
    return read_states(spark, batch.checkpoint, fold, batch_id=batch.batch_id)


if __name__ == "__main__":
    parser = ArgumentParser(description="A shell over a lake.")
    parser.add_argument("--lake", required=True, help="the lake's folder or URI")
    lake = open_lake(parser.parse_args().lake)
    spark = spark_session("shell")

    def read_state(name: str) -> DataFrame:
        return state_of(spark, lake, name)

    views = make_views(spark, lake)
    sys.stdout.write(f"lake  {lake.root}\nviews {', '.join(views) or 'none yet'}\n")
    sys.stdout.write("spark.sql('select ...').show(), read_state('user_counts').show()\n")
