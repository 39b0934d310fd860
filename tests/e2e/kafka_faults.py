"""Random cuts of ingestion from a real broker: whatever is cut, and where, each message is taken once.

    make faults ARGS="--only kafka"                    # 200 cuts: half an hour on 2 cores
    make faults ARGS="--only kafka --cuts 20 --first 7 --match broker"

A cut is a seed: what is done to the process that ingests, to the broker, the topic or a task of
Spark, before which write or message of a run, what went before, and whether producers go on
meanwhile. Its result is a line of the file of results: started again, only the others are tried.
"""

import json
import os
import sys
import tempfile
import traceback
from collections import Counter
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from include.lake.paths import made_lake
from include.settings import PROJECT
from include.spark.conf import FORKLESS, STATE, STATE_STORE, jars, job_conf
from include.spark.local_jobs import say
from tests.e2e.kafka_broker import running_broker
from tests.e2e.kafka_cuts import ACCEPTED, FAULTS, Cut, Result, cut_of, run_cut


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


def known_results(path: Path) -> dict[int, Result]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {result.seed: result for result in (Result(**json.loads(line)) for line in lines)}


def tried(cuts: list[Cut], path: Path) -> list[int]:
    """Try those that have no result; the seeds of those that fail, with their lakes kept."""
    failed, known = [], known_results(path)
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=path.parent))
    with running_broker(folder / "broker") as broker, path.open("a") as results:
        for cut in cuts:
            if cut.seed in known:
                continue
            lake = made_lake(str(folder / f"lake-{cut.seed}"))
            try:
                result = run_cut(cut, lake, broker, spark_session)
            except Exception:  # noqa: BLE001 (whatever it is, the other cuts are tried)
                say(f"{cut}: FAILED, see {lake.root}\n{traceback.format_exc()}")
                failed.append(cut.seed)
                continue
            results.write(json.dumps(result._asdict()) + "\n")
            results.flush()
            say(f"{result}")
    return failed


def summed(results: list[Result]) -> str:
    """Markdown."""
    lines = [
        "| cut | cuts | messages | whole at once | after --accept-loss | not reached |",
        "|---|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        of_it = [result for result in results if result.fault == fault]
        hit = [result for result in of_it if result.is_hit]
        ended = Counter(result.ended for result in hit)
        messages, missed = sum(result.messages for result in hit), len(of_it) - len(hit)
        counts = f"{ended['at once']} | {ended[ACCEPTED]} | {missed}"
        lines.append(f"| {fault} | {len(hit)} | {messages:,} | {counts} |")
    return "\n".join(lines)


def run_cuts(count: int, first: int, fault: str | None, path: Path) -> int:
    """Try so many, or those of them that have this fault; how many failed."""
    cuts = [cut_of(seed) for seed in range(first, first + count)]
    failed = tried([cut for cut in cuts if fault in (None, cut.fault)], path)
    say(summed(list(known_results(path).values())))
    if failed:
        say(f"{len(failed)} cuts failed: seeds {failed}")
    return len(failed)
