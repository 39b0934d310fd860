"""Ingest a source into bronze and quarantine with Spark, which parses the files and writes their rows.

    ./stateful ingest signals

All else is as in include/ingest/ingest.py.
"""

from include.ingest.ingest import run
from spark_jobs.job import exit_with_main, spark_session
from spark_jobs.tables.landing import parsed_on


def main() -> None:
    run(lambda lake: parsed_on(spark_session("ingest")))


if __name__ == "__main__":
    exit_with_main(main)
