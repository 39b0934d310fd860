"""One interface of writers, by delta-rs and by delta-spark, each commit with its record and transaction.

    python -m tests.experiments.writers kills arrow   # before each write; --s3: on SeaweedFS
    python -m tests.experiments.writers kills mixed   # in Spark, by either; or spark. Before drawn writes
    python -m tests.experiments.writers others        # the record, after commits of others
    python -m tests.experiments.writers speculation   # two executors, one of them stopped at a time

`kills` needs Linux and gcc.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable as SparkTable
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.lake.commits import is_written, transaction
from include.lake.ops import despite_others
from include.spark.submit import shell_environment
from spark_jobs.tables.product import append_once, delta_transaction, range_condition
from tests.e2e.object_store import BUCKET, prepared, running_store
from tests.e2e.standalone_cluster import standalone_cluster
from tests.experiments.written_batches import (
    AT,
    BATCHES,
    DATE,
    EMPTY,
    KEY,
    REMOVED,
    Batch,
    check,
    make,
    records,
    rows_of,
    write,
)
from tests.simulator.arrow_ranges import EVERYTHING, Range

RAW = argparse.RawTextHelpFormatter
SAME_KEY = f"old.{KEY} = new.{KEY}"
Bounds = tuple[int, int]  # microseconds: from, until


class ArrowWriter:
    """By delta-rs: rows that fit in memory, without a JVM."""

    def __init__(self, path: str) -> None:
        self.table = DeltaTable(path)

    def append(self, rows: pa.Table, batch: Batch) -> None:
        self._once(batch, lambda commit: self.write(rows, commit, mode="append"))

    def replace(self, rows: pa.Table, within: Bounds | None, batch: Batch) -> None:
        where = Range(AT, DATE, *within).predicate() if within else EVERYTHING
        how = {"mode": "overwrite", "predicate": where}
        self._once(batch, lambda commit: self.write(rows, commit, **how))

    def merge(self, rows: pa.Table, batch: Batch) -> None:
        self._once(batch, lambda commit: self.upsert(rows, commit))

    def write(self, rows: pa.Table, commit: CommitProperties, **how: str) -> None:
        stored = rows.select([field.name for field in self.table.schema().fields])
        write_deltalake(self.table, stored, commit_properties=commit, **how)

    def upsert(self, rows: pa.Table, commit: CommitProperties) -> None:
        columns = {field.name: f"new.{field.name}" for field in self.table.schema().fields}
        aliases = {"source_alias": "new", "target_alias": "old"}
        merge = self.table.merge(rows, SAME_KEY, commit_properties=commit, **aliases)
        merge = merge.when_matched_delete(f"new.{REMOVED}").when_matched_update(columns)
        merge.when_not_matched_insert(columns, predicate=f"NOT new.{REMOVED}").execute()

    def _once(self, batch: Batch, write: Callable[[CommitProperties], None]) -> None:
        commit = CommitProperties(
            custom_metadata={"userMetadata": batch.metadata},
            max_commit_retries=0,
            app_transactions=[transaction(batch.app, batch.number)],
        )

        def unless_written() -> None:
            table = self.table
            table.update_incremental()
            if is_written(table, batch.app, batch.number):
                return
            write(commit)
            if not is_written(table, batch.app, batch.number):  # a MERGE without effect
                parts = table.metadata().partition_columns
                nothing = ([], "append", table.schema(), parts)
                table.create_write_transaction(*nothing, commit_properties=commit)

        despite_others(unless_written)


class SparkWriter:
    """By delta-spark: any number of rows. Within `foreachBatch` frames of the batch's own session."""

    def __init__(self, path: str) -> None:
        self._path = path

    def append(self, rows: DataFrame, batch: Batch) -> None:
        append_once(self._stored(rows), self._path, batch.app, batch.number, batch.metadata)

    def replace(self, rows: DataFrame, within: Bounds | None, batch: Batch) -> None:
        where = range_condition(AT, DATE, *(within or (None, None)))
        with delta_transaction(rows.sparkSession, batch.app, batch.number, batch.metadata):
            writer = self._stored(rows).write.format("delta").mode("overwrite")
            writer.option("replaceWhere", where).save(self._path)

    def merge(self, rows: DataFrame, batch: Batch) -> None:
        table = SparkTable.forPath(rows.sparkSession, self._path)
        columns: Any = {name: f"new.{name}" for name in table.toDF().columns}
        with delta_transaction(rows.sparkSession, batch.app, batch.number, batch.metadata):
            merge = table.alias("old").merge(rows.alias("new"), SAME_KEY)
            merge = merge.whenMatchedDelete(f"new.{REMOVED}").whenMatchedUpdate(set=columns)
            merge.whenNotMatchedInsert(f"NOT new.{REMOVED}", values=columns).execute()

    def _stored(self, rows: DataFrame) -> DataFrame:
        table = rows.sparkSession.read.format("delta").load(self._path)
        return rows.select(*table.columns)


def drive(root: str, by: str, attempt: int = 0) -> None:
    """All batches: those that are written once more change nothing."""
    if by == "arrow":
        writers = ArrowWriter(f"{root}/appended"), ArrowWriter(f"{root}/updated")
        for number, rows in enumerate(map(rows_of, range(BATCHES))):
            write(number, rows, rows.filter(pc.invert(rows[REMOVED])), *writers)
        return

    def write_batch(frame: DataFrame, number: int) -> None:
        rows: Any = frame.where(F.lit(number != EMPTY)).repartition(4)
        kept: Any = rows.where(~F.col(REMOVED))
        by_spark = by == "spark" or (number + attempt) % 2
        if not by_spark:
            rows, kept = (part.toArrow().cast(rows_of(0).schema) for part in (rows, kept))
        kind: Any = SparkWriter if by_spark else ArrowWriter
        write(number, rows, kept, kind(f"{root}/appended"), kind(f"{root}/updated"))

    reader = SparkSession.builder.getOrCreate().readStream.format("delta")
    stream = reader.option("maxFilesPerTrigger", "1").load(f"{root}/bronze").writeStream
    stream = stream.foreachBatch(write_batch).trigger(availableNow=True)
    stream.start(checkpointLocation=f"{root}/checkpoint").awaitTermination()


def command(root: str, by: str, attempt: int = 0) -> list[str]:
    given = ["drive", by, "--root", root, "--attempt", str(attempt)]
    return [sys.executable, "-m", "tests.experiments.writers", *given]


class Killer:
    """Runs `drive` in processes that die before a given write of theirs, or of their JVM."""

    def __init__(self, folder: Path) -> None:
        self._library, self._count = folder / "counted_writes.so", folder / "count"
        source = Path(__file__).with_name("counted_writes.c")
        gcc = ["gcc", "-shared", "-fPIC", "-O2", "-w", str(source), "-o", str(self._library)]
        subprocess.run(gcc, check=True)

    def run(self, root: str, by: str, kill_at: int = 0, attempt: int = 0) -> int | None:
        """How many writes it made; None: it was killed."""
        self._count.write_bytes(bytes(4096))
        counting = {"LD_PRELOAD": str(self._library), "WRITES_COUNTED": str(self._count)}
        counting |= {"WRITES_BELOW": root, "WRITES_KILL_AT": str(kill_at)}
        of_spark = {} if by == "arrow" else shell_environment(root)
        environment = os.environ | of_spark | counting
        how: Any = {"start_new_session": True, "stderr": subprocess.DEVNULL}
        code = subprocess.Popen(command(root, by, attempt), env=environment, **how).wait()
        assert code in (0, -signal.SIGKILL), code
        return int.from_bytes(self._count.read_bytes()[:4], "little") if code == 0 else None


def kills(places: Iterator[str], killer: Killer, by: str, seeds: int) -> None:
    """By delta-rs before each write; by Spark before drawn ones, until a run comes to its end."""
    make(root := next(places))
    writes = killer.run(root, by)
    assert writes is not None
    check(root, BATCHES - 1)
    drive(root, "arrow")  # all once more
    check(root, BATCHES - 1)
    drawn = (random.Random(seed) for seed in range(seeds))
    plans = [[seed.randrange(1, writes // 4) for _ in range(16)] for seed in drawn]
    if by == "arrow":
        plans = [[at] for at in range(1, writes + 1)]
    killed = between = 0
    for plan in plans:
        make(root := next(places))
        for attempt, at in enumerate([*plan, 0]):
            if killer.run(root, by, at, attempt) is not None:
                break
            newest = check(root)
            say(f"killed before its write {at}: batches {newest}")
            killed, between = killed + 1, between + (newest[0] != newest[1])
        check(root, BATCHES - 1)
    say(f"{by}, {writes} writes: {killed} kills, {between} between the two tables: equal")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def others(place: str) -> None:
    """Whether record and transaction are found after what others commit, and a batch is repeated."""
    spark = SparkSession.builder.getOrCreate()
    make(place)
    drive(place, "arrow")
    path = f"{place}/appended"
    name = f"delta.`{path}`"
    alter = f"ALTER TABLE {name} SET TBLPROPERTIES"
    steps: dict[str, Callable[[], object]] = {
        "compact by delta-rs": lambda: DeltaTable(path).optimize.compact(),
        "OPTIMIZE by Spark": lambda: spark.sql(f"OPTIMIZE {name}"),
        "properties by Spark": lambda: spark.sql(f"{alter} ('theirs' = '1')"),
        "VACUUM by Spark": lambda: spark.sql(f"VACUUM {name}"),
        "vacuum by delta-rs": lambda: DeltaTable(path).vacuum(dry_run=False),
        "30 commits by Spark": lambda: [spark.sql(f"{alter} ('n' = '{n}')") for n in range(30)],
        "clean-up of a log of 40 days ago": lambda: clean_up(path),
    }
    for step, commit in steps.items():
        commit()
        found, version = records(path), DeltaTable(path).version()
        drive(place, "arrow")
        theirs = spark.sql(f"DESCRIBE HISTORY {name}").where("userMetadata IS NOT NULL").count()
        again = DeltaTable(path).version() - version
        say(f"{step}: records {len(found)}, by Spark {theirs}; repeated: {again} commits")


def clean_up(path: str) -> None:
    DeltaTable(path).create_checkpoint()
    for file in Path(path, "_delta_log").glob("*.json"):
        os.utime(file, (time.time() - 40 * 86_400,) * 2)
    DeltaTable(path).cleanup_metadata()


SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.task.duration.threshold": "400ms",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.executor.cores": "1",
}


def speculation(folder: Path, rounds: int) -> None:
    """Of two executors one is stopped at a time: Spark starts its tasks once more on the other."""
    with standalone_cluster(folder, workers=2, cores=1) as cluster:
        os.environ["SPARK_MASTER"] = cluster.master
        for by in ("spark", "mixed") * rounds:
            make(root := tempfile.mkdtemp(dir=folder))
            logs = Path(tempfile.mkdtemp(dir=folder))
            environment = os.environ | shell_environment(root)
            conf = {**SPECULATING, "spark.eventLog.dir": str(logs)}
            options = " ".join(f"--conf {name}={value}" for name, value in conf.items())
            environment["PYSPARK_SUBMIT_ARGS"] = f"{options} {environment['PYSPARK_SUBMIT_ARGS']}"
            with subprocess.Popen(command(root, by), env=environment) as process:
                stop_in_turns(process)
            assert process.returncode == 0
            check(root, BATCHES - 1)
            say(f"{by}: {tasks_told(logs)}: equal")


def stop_in_turns(process: subprocess.Popen[bytes]) -> None:
    """One executor for a second and a half, then another, until the process ends."""
    chosen = random.Random(1)
    while process.poll() is None:
        running = list(filter(is_executor, psutil.Process().children(recursive=True)))
        if len(running) == 2:
            slow = chosen.choice(running)
            slow.suspend()
            time.sleep(1.5)
            slow.resume()
        time.sleep(0.5)


def is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline()
    return False


def tasks_told(logs: Path) -> str:
    texts = [file.read_text() for file in logs.rglob("events_*")]
    events = [json.loads(line) for text in texts for line in text.splitlines()]
    ends = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
    again = [end["Task End Reason"]["Reason"] for end in ends if end["Task Info"]["Speculative"]]
    return f"{len(ends)} tasks, {len(again)} speculative, of which {again.count('Success')} won"


@contextmanager
def places(folder: Path, on_s3: bool) -> Iterator[Iterator[str]]:
    """Roots of lakes, on a local disk or in an object store that runs meanwhile."""
    if not on_s3:
        yield (str(folder / f"lake-{n}") for n in range(1000))
        return
    prepared()
    with running_store(folder / "s3") as store:
        os.environ.update(store.environment)
        yield (f"s3a://{BUCKET}/lake-{n}" for n in range(1000))


def main() -> None:
    parser = argparse.ArgumentParser(None, None, __doc__, formatter_class=RAW)
    parser.add_argument("what", choices=["kills", "others", "speculation", "drive"])
    parser.add_argument("by", nargs="?", choices=["arrow", "spark", "mixed"], default="arrow")
    parser.add_argument("--s3", action="store_true", help="on SeaweedFS, which is fetched once")
    parser.add_argument("--rounds", type=int, default=2, help="lakes, where draws are made")
    parser.add_argument("--root", help="of drive, which the others start")
    parser.add_argument("--attempt", type=int, default=0)
    given = parser.parse_args()
    if given.what == "drive":
        return drive(given.root, given.by, given.attempt)
    os.environ.setdefault("SPARK_MASTER", "local[2]")
    with tempfile.TemporaryDirectory() as name, places(Path(name), given.s3) as roots:
        if given.what == "kills":
            kills(roots, Killer(Path(name)), given.by, given.rounds)
        elif given.what == "speculation":
            speculation(Path(name), given.rounds)
        else:
            os.environ.update(shell_environment(root := next(roots)))
            others(root)


if __name__ == "__main__":
    main()
