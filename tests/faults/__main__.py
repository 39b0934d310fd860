"""Every fault that we can think of, tried: what comes of it is equal, or loud and mended.

    python -m tests.faults                                 # all that needs no JVM
    python -m tests.faults --only matrix --choose 7 40     # 40 rows, by a seed
    python -m tests.faults --match "older | bronze"

A result is a line of the file of results: started again, only what has none, or a wrong one, is tried.
"""

import json
import shutil
import sys
import tempfile
import traceback
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path

from include.settings import PROJECT
from include.spark.local_jobs import say
from spark_jobs.engines.local_engine import LocalEngine
from tests.faults.command_line import CommandLine
from tests.faults.lakes import registered
from tests.faults.matrix import Row, chosen, rows
from tests.faults.trial import EQUAL, MENDED, MISSED, WRONG, Bases, Result, Trial
from tests.simulator.live_model import LiveModel


def known_results(path: Path) -> dict[str, Result]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {found.name: found for found in (Result(**json.loads(line)) for line in lines)}


def without_jvm() -> CommandLine:
    return CommandLine(lambda: LocalEngine(LiveModel()), lambda: None)


def tried(wanted: list[Row], commands: CommandLine, path: Path) -> None:
    """Try those that have no result yet, or a wrong one."""
    known = known_results(path)
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=memory if memory.is_dir() else None))
    try:
        with registered(), commands.installed(), path.open("a") as results:
            bases = Bases(folder, commands)
            for stream in {row.stream for row in wanted}:
                bases.of(stream)
            for row in wanted:
                if row.name in known and known[row.name].ended != WRONG:
                    continue
                result = _result(row, bases, commands)
                results.write(json.dumps(result._asdict()) + "\n")
                results.flush()
                if result.ended == WRONG:
                    say(f"{row.name}: {result.told}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _result(row: Row, bases: Bases, commands: CommandLine) -> Result:
    try:
        return Trial(row, bases, commands).result()
    except Exception:  # noqa: BLE001 (whatever it is, the other rows are tried)
        return Result(row.name, row.group, WRONG, traceback.format_exc()[-3000:], 0)


def summed(results: list[Result]) -> str:
    """Markdown."""
    lines = ["| fault | tried | equal | loud and mended | wrong |", "|---|---|---|---|---|"]
    for group in [*dict.fromkeys(result.group for result in results), None]:
        of_it = [each for each in results if group in (each.group, None) and each.ended != MISSED]
        ended = Counter(each.ended for each in of_it)
        counts = " | ".join(str(ended[how]) for how in (EQUAL, MENDED, WRONG))
        lines.append(f"| {group or 'all'} | {len(of_it)} | {counts} |")
    return "\n".join(lines)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="rows that have this text in their name")
    parser.add_argument("--choose", type=int, nargs=2, metavar=("SEED", "COUNT"))
    parser.add_argument("--results", type=Path, default=PROJECT / ".bench" / "matrix.jsonl")
    args = parser.parse_args()
    args.results.parent.mkdir(parents=True, exist_ok=True)
    wanted = chosen(*args.choose) if args.choose else rows()
    wanted = [row for row in wanted if args.match in row.name and not row.on_spark]
    tried(wanted, without_jvm(), args.results)
    known = known_results(args.results)
    found = [known[row.name] for row in wanted if row.name in known]
    say(summed(found))
    if wrong := sum(each.ended == WRONG for each in found):
        sys.exit(f"{wrong} rows are wrong: see {args.results}")


if __name__ == "__main__":
    main()
