"""`./stateful demo-internals`: run the demo of docs/internals.md in a lake that lives as long as it.

python -m include.sample.show_internals
"""

import os
import subprocess
import sys
from tempfile import TemporaryDirectory

from include.settings import PROJECT
from include.spark.conf import driver_java_options
from include.spark.submit import job_environment, job_path, submit_command

JOB = "show_internals"
LOG4J = PROJECT / "include" / "log4j2-internals.properties"


def main() -> int:
    """Run it to its end; its exit code."""
    with TemporaryDirectory(prefix="internals-") as folder:
        environment = os.environ | job_environment("local[2]")
        # From there, so that what Spark leaves in its working directory goes, too.
        return subprocess.run(
            demo_command(folder), env=environment, cwd=folder, check=False
        ).returncode


def demo_command(folder: str) -> list[str]:
    """The job's command line, with debug logging into the folder; Spark takes the last of a setting."""
    # Two tasks at a time on any machine: one for each state partition.
    command = submit_command(JOB, ["--lake", folder], master="local[2]")
    java_options = driver_java_options(LOG4J, f'"-Dinternals.log={folder}/debug.log"')
    at = command.index(str(job_path(JOB)))
    return [*command[:at], "--conf", f"spark.driver.extraJavaOptions={java_options}", *command[at:]]


if __name__ == "__main__":
    sys.exit(main())
