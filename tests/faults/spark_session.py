"""The session of all rows, pairs, cuts and seeds of a process."""

import os
import sys
from functools import cache

from pyspark.sql import SparkSession

from include.settings import PROJECT
from include.spark.conf import FORKLESS, STATE, STATE_STORE, jars, job_conf


@cache
def spark_session() -> SparkSession:
    """A task is tried again, as on a cluster; locally only where that is asked for."""
    # Workers must run this interpreter, and import the project.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(PROJECT)
    builder = SparkSession.builder.master("local[2,4]").appName("faults")
    settings = {**job_conf(), **STATE, **FORKLESS, "spark.jars": ",".join(map(str, jars()))}
    # Of no run of seconds: in the one JVM of many it would wake up within some of them.
    settings[f"{STATE_STORE}.maintenanceInterval"] = str(24 * 3_600_000)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
