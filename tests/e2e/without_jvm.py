"""A job of `spark_jobs` without a JVM, in the place of spark-submit: it takes its arguments."""

import sys
from pathlib import Path

from tests.faults.command_line import CommandLine
from tests.simulator.live_model import LiveModel
from tests.simulator.local_engine import LocalEngine


def main(words: list[str]) -> int:
    is_job = (Path(word).parent.name == "spark_jobs" for word in words)
    at = list(is_job).index(True)
    commands = CommandLine(lambda: LocalEngine(LiveModel()))
    with commands.installed():
        return commands.run_job(Path(words[at]).stem, words[at + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
