"""The record and its `verify` (record_model.py), tried on mixtures of older and newer parts, and under others' hands.

    .venv/bin/python -m tests.experiments.record_on_real_logs mixtures --out .bench/record
    .venv/bin/python -m tests.experiments.record_on_real_logs others --out .bench/record      (starts a JVM)
    .venv/bin/python -m tests.experiments.record_on_real_logs long --out .bench/record        (starts a JVM)

`mixtures`: a lake of two lives (once the whole of it is put back) is copied after each write; each mixture of parts
from different copies, or lost, is a lake. Where `verify` has nothing to say it goes on, where it refuses it is
rebuilt; then the tables must be what plain Python makes of what was done to them. Then each check is left out, and
mixtures that it alone refuses must come out wrong. `others`: statements of somebody else's on Spark. `long`: what
the record of a log of 5,000 commits costs to find, and what is left of it when the log is cleaned.
"""

import hashlib
import itertools
import json
import os
import random
import shutil
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from include.spark.conf import jars, job_conf
from include.spark.submit import job_environment
from tests.experiments.record_model import (
    CHECKS,
    PARTS,
    SCHEMAS,
    Lake,
    Log,
    OfOtherTimesError,
    Op,
    Parts,
    Row,
    Seen,
    counted,
    verify,
)

Mixture = tuple[int, ...]  # of each part, the number of its instant
ALTER = "ALTER TABLE {} "
MAPPED = ALTER + "SET TBLPROPERTIES ('delta.columnMapping.mode'='name')"
HARMLESS = (
    "OPTIMIZE {}",
    "OPTIMIZE {}; VACUUM {} RETAIN 168 HOURS",
    "OPTIMIZE {}; VACUUM {} RETAIN 0 HOURS",
    ALTER + "SET TBLPROPERTIES ('delta.logRetentionDuration'='interval 60 days', 'whose'='theirs')",
    ALTER + "ALTER COLUMN key COMMENT 'whose'",
)
HARMFUL = (
    "DELETE FROM {} WHERE key = 'k1'",
    "UPDATE {} SET key = 'k0' WHERE key = 'k1'",
    "INSERT INTO {} SELECT * FROM {} LIMIT 1",
    "INSERT OVERWRITE {} SELECT * FROM {} WHERE key = 'k1'",
    "MERGE INTO {} o USING (SELECT 'k1' AS key) n ON o.key = n.key WHEN MATCHED THEN DELETE",
    "RESTORE TABLE {} TO VERSION AS OF 3",
    "DELETE FROM {} WHERE key = 'k1'; OPTIMIZE {}",
    f"{MAPPED}; {ALTER} DROP COLUMN key",
    f"{MAPPED}; {ALTER} RENAME COLUMN key TO whose",
)
FEW = (*HARMLESS[1:3], HARMFUL[0], HARMFUL[5])
FEATURES = (
    "ChangeDataFeed",
    "DeletionVectors",
    "RowTracking",
    "InCommitTimestamps",
    "TypeWidening",
)
UPGRADES = (
    ALTER + "ADD COLUMN theirs INT",
    ALTER + "ADD CONSTRAINT told CHECK (key IS NOT NULL)",
    MAPPED,
    *(ALTER + f"SET TBLPROPERTIES ('delta.enable{name}'='true')" for name in FEATURES),
    ALTER + "SET TBLPROPERTIES ('delta.checkpointPolicy'='v2')",
    ALTER + "SET TBLPROPERTIES ('delta.appendOnly'='true')",
)


ERRORS = (OfOtherTimesError, OSError, LookupError, TypeError, ValueError, DeltaError)


class Instant(NamedTuple):
    """A copy of the lake after a write, and what was done until then."""

    write: str
    folder: Path
    batches: tuple[list[Row], ...]
    ops: tuple[Op, ...]


class History(Seen):
    """A lake that is copied after each write."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        shutil.rmtree(out, ignore_errors=True)
        self.lake, self.out = Lake(out / "lake", self.tick), out
        self.instants: list[Instant] = []

    def tick(self, name: str, op: Op | None) -> None:
        super().tick(name, op)
        folder = self.out / "instants" / str(len(self.instants))
        shutil.copytree(self.lake.root, folder)
        self.instants.append(Instant(name, folder, self.batches, self.ops))

    def put_back(self, instant: Instant) -> None:
        """The whole lake; savepoints, whose names are never used again, stay."""
        for part in PARTS:
            shutil.rmtree(self.lake.root / part)
            shutil.copytree(instant.folder / part, self.lake.root / part)
        self.batches, self.ops = instant.batches, instant.ops


def events(number: int, *late: int) -> list[Row]:
    """Five events, and late ones at those instants."""
    times = [*late, *(number * 100 + offset for offset in range(5))]
    return [{"id": number * 10 + i, "key": f"k{i % 3}", "t": t} for i, t in enumerate(times)]


def two_lives(out: Path) -> History:
    """The second begins after a batch's commit to the table, before its dead letters are written."""
    history = History(out)
    lake = history.lake
    for number, late in ((1, ()), (2, (102, 103)), (3, (201,))):
        lake.ingest(events(number, *late))
        lake.drain()
        if number == 2:
            lake.restate(101, 104)
    backup = next(i for i in reversed(history.instants) if i.write == "table")
    lake.ingest(events(4))
    lake.drain()
    lake.rebuild()
    lake.ingest(events(5, 302))
    lake.drain()
    history.put_back(backup)
    lake.drain()
    lake.ingest(events(6))
    lake.drain()
    lake.ingest(events(7, 602))
    lake.rebuild()
    lake.drain()
    lake.rebuild(version=Log(lake.root / "bronze").version - 2)
    lake.drain()
    return history


class Mixtures:
    """Mixtures of the parts of a history's instants; the last instant has lost all of them."""

    def __init__(self, history: History) -> None:
        self.out, self.savepoints = history.out / "mixed", history.lake.root / "savepoints"
        self.instants = [*history.instants, Instant("lost", history.out / "lost", (), ())]
        # Of each instant, the first one at which each of the parts was as it is then.
        self.same: list[Mixture] = []
        first: dict[str, int] = {}
        for number, instant in enumerate(self.instants):
            digests = [part + digest(instant.folder / part) for part in PARTS]
            self.same.append(tuple(first.setdefault(each, number) for each in digests))
        self.different = [sorted(set(numbers)) for numbers in zip(*self.same, strict=True)]
        self.read = {
            (part, number): self.instants[number].folder / part
            if part == "checkpoint"
            else Log(self.instants[number].folder / part)
            for part, numbers in zip(PARTS, self.different, strict=True)
            for number in numbers
        }

    def problem(self, mixture: Mixture, checks: Sequence[str] = CHECKS) -> str | None:
        parts: Any = [self.read[each] for each in zip(PARTS, mixture, strict=True)]
        return verify(Parts(*parts), checks)

    def outcome(
        self, mixture: Mixture, mend: bool, checks: Sequence[str] = CHECKS, saved: bool = True
    ) -> str:
        """What comes of going on, or of a rebuild; `saved`: there are savepoints."""
        shutil.rmtree(self.out, ignore_errors=True)
        folders = [
            self.instants[number].folder / p for p, number in zip(PARTS, mixture, strict=True)
        ]
        for folder in [*folders, *([self.savepoints] if saved else [])]:
            if folder.exists():
                shutil.copytree(folder, self.out / folder.name, copy_function=os.link)
        seen = Seen(self.instants[mixture[2]].batches, self.instants[mixture[0]].ops)
        try:
            return gone_on(Lake(self.out, seen.tick, checks), seen, mend)
        except ERRORS as error:
            return f"refused: {type(error).__name__} {error if isinstance(error, OfOtherTimesError) else ''}"


def digest(folder: Path) -> str:
    """What the files in a folder have; those of rows have names that are never used again."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    said = [(str(f.relative_to(folder)), f.suffix == ".parquet" or f.read_bytes()) for f in files]
    return hashlib.sha256(repr(said).encode()).hexdigest()


def gone_on(lake: Lake, seen: Seen, mend: bool) -> str:
    """Whether table and dead letters are right after more events, some late, and a rebuild if one is due."""
    lake.ingest(events(20, 103))
    if mend:
        lake.rebuild()
        lake.ingest(events(21))
    lake.drain()
    found = [counted(lake.rows(part)) for part in ("table", "letters")]
    return "equal" if found == [counted(rows) for rows in seen.expected()] else "WRONG"


def mixtures(out: Path, sample: int) -> None:
    history = two_lives(out)
    mixed, lived = Mixtures(history), history.instants
    say(f"{len(lived)} instants: {' '.join(each.write for each in lived)}")
    say(f"different, and lost: {dict(zip(PARTS, map(len, mixed.different), strict=True))}")
    verdicts = {each: mixed.problem(each) for each in itertools.product(*mixed.different)}
    say(f"{len(verdicts)} mixtures: {tally(verdicts.values())}")
    say(f"of one time: {tally(verdicts[each] for each in mixed.same[:-1])}")
    newer = [
        (*then[:2], now[2], then[3])
        for (was, then), (later, now) in itertools.product(
            zip(lived, mixed.same[:-1], strict=True), repeat=2
        )
        if later.batches[: len(was.batches)] == was.batches
    ]
    say(f"of one time, bronze as old or newer: {tally(verdicts[each] for each in newer)}")
    going = [each for each, problem in verdicts.items() if problem is None]
    loud = [each for each, problem in verdicts.items() if problem is not None]
    own = {numbers[0]: numbers[3] for numbers in mixed.same}
    tried = [each for each in loud if own[each[0]] == each[3]]
    more = random.Random(1).sample([each for each in loud if own[each[0]] != each[3]], sample)
    say(f"going on: {tally(mixed.outcome(each, mend=False) for each in going)}")
    seeded = [e for e in going if (mixed.read["table", e[0]].record or {}).get("savepoint")]
    say(f"of lost savepoints: {tally(mixed.outcome(e, False, saved=False) for e in seeded)}")
    for left_out in CHECKS[1:]:
        checks = [check for check in CHECKS if check != left_out]
        say(f"without {left_out}: {planted(mixed, loud, checks)}")
    weaker = [check.replace("plans", "plans_by_version") for check in CHECKS]
    say(f"plans by version alone: {planted(mixed, loud, weaker)}")
    say(f"rebuilt, letters of the table's time: {tally(mixed.outcome(e, True) for e in tried)}")
    say(f"rebuilt, {sample} of the others: {tally(mixed.outcome(each, True) for each in more)}")
    say(f"record and checkpoint lost, batches known by their query: {all_lost(Lake, out)}")
    say(f"record and checkpoint lost, by their generation: {all_lost(ByGeneration, out)}")


class ByGeneration(Lake):
    """What not to do: after all is lost a generation's number may come again."""

    def app_id(self, record: Row) -> str:
        return f"stream/{record['generation']}"


def all_lost(kind: type[Lake], out: Path) -> str:
    """What comes of a rebuild after somebody's DELETE, when no commit before it is left, nor a checkpoint."""
    seen, root = Seen(), out / "mixed"
    shutil.rmtree(root)
    lake = kind(root, seen.tick)
    for number in (1, 2, 3):
        lake.ingest(events(number))
        lake.drain()
    shutil.rmtree(root / "checkpoint")
    table = DeltaTable(root / "table")
    table.delete("key = 'k1'")
    table.create_checkpoint()
    for version in range(table.version()):
        (root / "table" / "_delta_log" / f"{version:020}.json").unlink()
    return f"{verify(lake.parts())}, rebuilt {gone_on(lake, seen, mend=True)}"


def planted(mixed: Mixtures, loud: list[Mixture], checks: Sequence[str]) -> str:
    """What comes of mixtures that only what was left out refuses."""
    passed = [each for each in loud if mixed.problem(each, checks) is None]
    tried = random.Random(1).sample(passed, min(len(passed), 100))
    found = tally(mixed.outcome(each, mend=False, checks=checks) for each in tried)
    return f"{len(passed)} more go on, of {len(tried)} tried {found}"


def others(out: Path) -> None:
    """Each statement by somebody else, on a copy of the lake."""
    spark, history = session(), two_lives(out)
    statements = {"table": (*HARMLESS, *HARMFUL, *UPGRADES), "letters": FEW, "bronze": FEW}
    for part, text in ((part, text) for part, texts in statements.items() for text in texts):
        mixed = out / "mixed"
        shutil.rmtree(mixed, ignore_errors=True)
        shutil.copytree(history.lake.root, mixed)
        seen = Seen(history.batches, history.ops)
        lake, verdict, said = Lake(mixed, seen.tick), None, "not mended by a rebuild"
        try:
            for statement in text.split("; "):
                spark.sql(statement.replace("{}", f"delta.`{mixed / part}`"))
            verdict = verify(lake.parts())
            if part != "bronze" or verdict is None:
                said = after_others(spark, lake, part, seen, mend=verdict is not None)
        except (*ERRORS, PySparkException, Py4JError) as error:
            said = f"{type(error).__name__}: {str(error)[:250]!r}"
        say(f"{text.replace('{}', part)}: {verdict or 'ok'}, {said}")


def after_others(spark: SparkSession, lake: Lake, part: str, seen: Seen, mend: bool) -> str:
    """What comes of going on, or a rebuild; of a restatement and a rebuild; and what Spark reads then."""
    said = gone_on(lake, seen, mend)
    lake.restate(101, 104)
    lake.rebuild()
    rows = spark.read.format("delta").load(f"{lake.root}/{part}").select(*SCHEMAS[part].names)
    wanted = lake.rows("bronze") if part == "bronze" else seen.expected()[PARTS.index(part) // 2]
    same = counted([row.asDict() for row in rows.collect()]) == counted(wanted)
    return f"then {said}, Spark reads {'the same' if same else 'OTHER ROWS'}"


def long(out: Path, commits: int = 5_000) -> None:
    """A table of so many commits, of which Spark makes a few, and what becomes of its record."""
    spark, seen = session(), Seen()
    shutil.rmtree(out, ignore_errors=True)
    lake, path = Lake(out, seen.tick), str(out / "table")
    lake.ingest(events(1))
    lake.drain()
    record = lake.parts().record | {"intervals": [[n * 10, n * 10 + 10, n] for n in range(200)]}
    said, began = json.dumps({"stateful": record}), time.monotonic()
    nothing = spark.createDataFrame([], "key string, total long, emitted_at long")
    for number in range(commits):
        if number % 500 == 499:
            writer = nothing.write.format("delta").mode("append").option("userMetadata", said)
            writer.option("txnAppId", "spark").option("txnVersion", number).save(path)
        else:
            lake._commit("table", record, [], txn=("ours", number))
    say(
        f"{commits} commits, {(time.monotonic() - began) / commits * 1000:.1f} ms each, {len(said)} bytes a record"
    )
    price(lake, "of 5,000 commits")
    alter = f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES"
    for number in range(100):
        spark.sql(f"{alter} ('theirs'='{number}')")
    price(lake, "after 100 commits of others")
    clean = (
        f"{alter} ('delta.checkpointInterval'='1', 'delta.logRetentionDuration'='interval 1 days', "
        "'delta.deletedFileRetentionDuration'='interval 1 days')"
    )
    for restamped in (True, False):
        age(lake)
        if restamped:
            lake.restamp()
        spark.sql(clean)
        price(lake, f"cleaned by Spark, restamped: {restamped}")
    say(f"then, of a rebuild: {gone_on(lake, seen, mend=True)}")
    age(lake)
    DeltaTable(path).create_checkpoint()
    DeltaTable(path).cleanup_metadata()
    price(lake, "the record is the newest commit, cleaned by deltalake")


def age(lake: Lake) -> None:
    """The files of the table's log become 40 days old."""
    for file in (lake.root / "table" / "_delta_log").iterdir():
        os.utime(file, (time.time() - 40 * 86_400,) * 2)


def price(lake: Lake, name: str) -> None:
    """What it takes to find the record, and to open the table; medians of five."""
    path = lake.root / "table"
    found, opened = timed(lambda: Log(path).trouble), timed(lambda: DeltaTable(path).version())
    log = Log(path)
    say(
        f"{name}: {len(log.versions)} commits left, {log.trouble or 'ok'}: {found} ms, opened {opened} ms"
    )


def timed(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return round(sorted(times)[2] * 1000, 1)


def session() -> SparkSession:
    os.environ |= job_environment()
    builder = SparkSession.builder.master("local[2]").config(
        "spark.jars", ",".join(map(str, jars()))
    )
    for name, value in job_conf().items():
        builder = builder.config(name, value)
    unchecked = "spark.databricks.delta.retentionDurationCheck.enabled"
    return builder.config(unchecked, "false").getOrCreate()


def tally(outcomes: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(each or "ok" for each in outcomes))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("mixtures", "others", "long"))
    parser.add_argument("--out", type=Path, default=Path(".bench/record"))
    parser.add_argument("--sample", type=int, default=300, help="of mixtures that are rebuilt")
    args = parser.parse_args()
    out = args.out.absolute() / args.what
    if args.what == "mixtures":
        mixtures(out, args.sample)
    else:
        {"others": others, "long": long}[args.what](out)


if __name__ == "__main__":
    main()
