"""Find a service's silence by a job that runs after each file, and by one that was down meanwhile.

.venv/bin/python docs/compare.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
# Two files. No row is late, and billing is silent from 12:00 to 13:00.
FILES = ([("billing", "12:00"), ("search", "12:30")], [("billing", "13:00")])
SCHEMA = "service string, timestamp timestamp"


def silent(key, frames, state):
    """Yield a service five minutes after its last line."""
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"service": [key[0]]})
        return
    newest = max(frame["timestamp"].max() for frame in frames)
    state.update((True,))
    state.setTimeoutTimestamp(int(newest.timestamp() * 1000) + 5 * 60_000)


def stock_spark(lake):
    """Drain what has landed with Spark's own operator."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    lines = spark.readStream.schema(SCHEMA).json(f"{lake}/landing/service_logs")
    grouped = lines.withWatermark("timestamp", "5 minutes").groupBy("service")
    found = grouped.applyInPandasWithState(
        silent, "service string", "seen boolean", "append", "EventTimeTimeout"
    )
    writer = found.writeStream.trigger(availableNow=True).format("json")
    writer.option("checkpointLocation", f"{lake}/cp").start(f"{lake}/out").awaitTermination()
    return [row.service for row in spark.read.schema(SCHEMA).json(f"{lake}/out").collect()]


def this_project(lake):
    """Drain it with the stream service_health, whose delay and silence are five minutes, too."""
    command = ["include.cli", "stream", "service_health", "--lake", lake]
    here = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-m", *command], cwd=here, check=True, capture_output=True)
    # Not to_pyarrow_table(): now and then it aborts a process that ends.
    query = QueryBuilder().register("health", DeltaTable(f"{lake}/tables/service_health"))
    found = query.execute("SELECT service FROM health WHERE status = 'stale'").read_all()
    return found["service"].to_pylist()


for drain in (stock_spark, this_project):
    for runs in ((0, 1), (1,)):
        lake = mkdtemp()
        for number, rows in enumerate(FILES):
            file = Path(lake, "landing", "service_logs", f"{number}.json")
            file.parent.mkdir(parents=True, exist_ok=True)
            (file.parent / "_lagging").touch()  # more files come: no heartbeat
            lines = ({"service": name, "timestamp": f"2026-03-01T{at}:00Z"} for name, at in rows)
            file.write_text("\n".join(map(json.dumps, lines)))
            found = drain(lake) if number in runs else []
        print(f"{drain.__name__}, {len(runs)} run(s): {', '.join(sorted(found))}")  # noqa: T201
