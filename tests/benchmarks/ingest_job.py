"""Ingestion's job, here or on Spark, with commits as a source of one's own has them.

Those of the samples are a sixty-fourth, so that some of their rows are late.
"""

import sys
from dataclasses import replace

from include.job import exit_with_main
from include.landing import ingest
from include.settings import Source
from include.streams import sources
from spark_jobs import ingest_source
from spark_jobs.job import exit_with_main as exit_with_spark

sources.SOURCES = tuple(replace(each, commit_bytes=Source.commit_bytes) for each in sources.SOURCES)

if __name__ == "__main__":
    if sys.argv.pop(1) == "spark":
        exit_with_spark(ingest_source.main)
    else:
        exit_with_main(ingest.main)
