"""Every fault that we can think of, tried: what comes of it is equal, or loud and mended.

    make faults                                                  # all parts: hours
    make faults ARGS="--only matrix --choose 7 100"              # 100 rows, by a seed
    make faults ARGS="--only spark --match 'older | bronze'"     # rows with this in their name
    make faults ARGS="--only fuzz --minutes 1"
    make faults ARGS="--only kafka --cuts 20 --first 7"
    make faults ARGS="--only pairs --count 5 --first 7"          # two real drivers, one stopped

The parts: `matrix`, rows without a JVM; `spark`, those whose harm Spark comes upon, in one session;
`fuzz`, files with changed bytes; `kafka`, random cuts of ingestion from a real broker; `pairs`, two
drivers of one stream. Results are lines of files in .bench: started again, only what has none, or a
wrong one, is tried.
"""

import json
import shutil
import sys
import tempfile
import traceback
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from include.lake.paths import made_lake
from include.settings import PROJECT
from include.spark.submit import say
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import close_state_stores
from tests.e2e.kafka_broker import running_broker
from tests.e2e.kafka_cuts import Cut, cut_of, run_cut
from tests.faults import fuzz_runs, matrix, pairs
from tests.faults.command_line import CommandLine
from tests.faults.lakes import registered
from tests.faults.matrix import Row
from tests.faults.spark_session import spark_session
from tests.faults.trial import EQUAL, MENDED, MISSED, WRONG, Bases, Result, Trial
from tests.simulator.live_model import LiveModel
from tests.simulator.local_engine import LocalEngine

# How a row, or what is more than one, is tried.
Try = Callable[[Any, Bases, CommandLine], Result]


def known_results(path: Path) -> dict[str, Result]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {found.name: found for found in (Result(**json.loads(line)) for line in lines)}


def note(path: Path, result: Result) -> None:
    with path.open("a") as results:
        results.write(json.dumps(result._asdict()) + "\n")
    if result.ended == WRONG:
        say(f"{result.name}: {result.told}")


def without_jvm() -> CommandLine:
    return CommandLine(lambda: LocalEngine(LiveModel()))


def on_spark() -> CommandLine:
    return CommandLine(
        lambda: SparkEngine(spark_session()), spark_session, lambda: forget(spark_session())
    )


def forget(spark: SparkSession) -> None:
    """Forget what a new process would not know."""
    close_state_stores(spark)
    assert spark._jvm is not None
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def tried(row: Row, bases: Bases, commands: CommandLine) -> Result:
    return Trial(row, bases, commands).result()


def try_rows(
    wanted: Sequence[Row], commands: CommandLine, path: Path, how: Try = tried
) -> list[Result]:
    """Their results, each of a lake of its own."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=memory if memory.is_dir() else None))
    try:
        with registered(), commands.installed():
            bases = Bases(folder, commands)
            for stream in {row.stream for row in wanted}:
                bases.of(stream)
            return results_of(wanted, path, lambda row: how(row, bases, commands))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def results_of(wanted: Sequence[Any], path: Path, attempt: Callable[[Any], Result]) -> list[Result]:
    """Results, known ones but the wrong, and others by trying them now."""
    known, found = known_results(path), []
    for each in wanted:
        result = known.get(each.name)
        if result is None or result.ended == WRONG:
            result = _result(each, attempt)
            note(path, result)
        found.append(result)
    return found


def _result(each: Any, attempt: Callable[[Any], Result]) -> Result:
    try:
        return attempt(each)
    except Exception:  # noqa: BLE001 (whatever it is, the others are tried)
        return Result(each.name, each.fault, WRONG, traceback.format_exc()[-3000:], 0)


def summed(results: Sequence[Result]) -> str:
    """Markdown."""
    lines = ["| fault | tried | equal | loud and mended | wrong |", "|---|---|---|---|---|"]
    for group in [*dict.fromkeys(result.group for result in results), None]:
        of_it = [each for each in results if group in (each.group, None) and each.ended != MISSED]
        ended = Counter(each.ended for each in of_it)
        counts = " | ".join(str(ended[how]) for how in (EQUAL, MENDED, WRONG))
        lines.append(f"| {group or 'all'} | {len(of_it)} | {counts} |")
    return "\n".join(lines)


def _of_matrix(
    rows: Callable[[], list[Row]], commands: Callable[[], CommandLine], how: Try = tried
) -> Callable[[Namespace, Path], int]:
    def run(args: Namespace, path: Path) -> int:
        wanted = [row for row in rows() if args.match in row.name]
        if args.choose:
            wanted = matrix.chosen(wanted, *args.choose)
        return _told(try_rows(wanted, commands(), path, how))

    return run


def _told(results: Sequence[Result]) -> int:
    say(summed(results))
    return sum(result.ended == WRONG for result in results)


def _fuzz(args: Namespace, path: Path) -> int:
    done = {name for name, result in known_results(path).items() if result.ended != WRONG}
    for result in fuzz_runs.run_for(args.minutes, done):
        note(path, result)
    return _told(list(known_results(path).values()))


def _kafka(args: Namespace, path: Path) -> int:
    """Lakes of cuts that went wrong are kept."""
    cuts = [cut_of(seed) for seed in range(args.first, args.first + args.cuts)]
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=path.parent))
    with running_broker(folder / "broker") as broker:

        def attempt(cut: Cut) -> Result:
            lake = made_lake(str(folder / f"lake-{cut.seed}"))
            result = run_cut(cut, lake, broker, spark_session)
            shutil.rmtree(lake.root)
            return result

        return _told(results_of([cut for cut in cuts if args.match in cut.name], path, attempt))


def _pairs(args: Namespace, path: Path) -> int:
    wanted = [pairs.pair_of(seed) for seed in range(args.first, args.first + args.count)]
    wanted = [pair for pair in wanted if args.match in pair.name]
    return _told(try_rows(wanted, on_spark(), path, pairs.result_of))


PARTS: dict[str, Callable[[Namespace, Path], int]] = {
    "matrix": _of_matrix(matrix.without_jvm, without_jvm),
    "spark": _of_matrix(matrix.on_spark, on_spark),
    "fuzz": _fuzz,
    "kafka": _kafka,
    "pairs": _pairs,
}


def main() -> None:
    parser = ArgumentParser(prog="make faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--match", default="", help="rows with this text in their name")
    parser.add_argument("--choose", type=int, nargs=2, metavar=("SEED", "COUNT"))
    parser.add_argument("--minutes", type=float, default=10, help="of fuzz")
    parser.add_argument("--cuts", type=int, default=200, help="of kafka")
    parser.add_argument("--first", type=int, default=1, help="of kafka, pairs: the first seed")
    parser.add_argument("--count", type=int, default=50, help="of pairs")
    parser.add_argument("--results", type=Path, default=PROJECT / ".bench", help="their folder")
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    wrong = {}
    for part in args.only:
        say(f"{part}:")
        wrong[part] = PARTS[part](args, args.results / f"faults-{part}.jsonl")
    if any(wrong.values()):
        sys.exit(f"wrong: {wrong}, see {args.results}")


if __name__ == "__main__":
    main()
