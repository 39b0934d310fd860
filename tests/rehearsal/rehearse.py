"""The cluster of docker-compose.yaml without a container engine: `make rehearse`.

    python -m tests.rehearsal.rehearse [--short] [--s3] [--folder F]

Starts every service as a process on loopback, runs the streams through them, breaks one thing
after another, and holds all tables against SQL over the landed files. Exit code 0 when all are
equal. The folder, with all logs, is left when something failed, or when it was given. With --s3 the
lake is in a store of this machine that speaks S3, as a user would have it by `LAKE` in `.env`.
"""

import os
import resource
import shutil
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from urllib.error import URLError

from include.airflow.first_runs import DagNotReadError
from include.airflow.local_airflow import (
    StopRequestedError,
    heed_no_more_signals,
    stop_signals_raised,
)
from include.lake.paths import LakeError
from include.registry import all_streams, stream_named
from include.settings import SettingsError
from include.setup.jars import SetupError
from include.spark.local_jobs import say
from tests.e2e.object_store import BUCKET, prepared, running_store
from tests.rehearsal.cluster import COMPOSE, Cluster, make_cluster
from tests.rehearsal.compose_file import load_compose
from tests.rehearsal.interpolation import ComposeError
from tests.rehearsal.landed import Landing, Sample
from tests.rehearsal.not_rehearsed import not_rehearsed_keys
from tests.rehearsal.oracle import batch_findings, compare, row_counts, row_findings
from tests.rehearsal.process import Folders
from tests.rehearsal.report import (
    Steps,
    equality_lines,
    memory_lines,
    not_rehearsed_lines,
    times_lines,
)
from tests.rehearsal.runs import RehearsalError
from tests.rehearsal.scenario import SHORT, Scenario, short, whole
from tests.rehearsal.services import ServiceError

ERRORS = (
    ComposeError,
    DagNotReadError,
    LakeError,
    RehearsalError,
    ServiceError,
    SettingsError,
    SetupError,  # of a lake on S3: no JDK, no jars
    URLError,
    TimeoutError,
)
SAMPLE = Sample(events=6_000, hours=12, parts=9)
SHORT_SAMPLE = Sample(events=1_500, hours=6, parts=2)
# At the end, for a job that its schedule has begun meanwhile: seconds, not an hour as in earnest.
LAST_PATIENCE = 120.0
# What a user would write into .env for a machine of two cores and little memory.
SETTINGS = {"SPARK_WORKER_CORES": "2", "SPARK_WORKER_MEMORY": "2g", "PARALLELISM": "2"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(description="Rehearse docker-compose.yaml without an engine.")
    parser.add_argument("--short", action="store_true", help="two streams and fewer steps")
    parser.add_argument("--s3", action="store_true", help="the lake in a store that speaks S3")
    parser.add_argument("--folder", type=Path, help="new; default: one that is deleted at the end")
    args = parser.parse_args(argv)
    folder = (args.folder or Path(mkdtemp(prefix="rehearsal-"))).resolve()
    try:
        make_folder(folder)
        with stop_signals_raised(), lake_on_s3(folder / "store", wanted=args.s3) as settings:
            code = rehearse(folder, SETTINGS | settings, is_short=args.short)
    except StopRequestedError:
        code = 128 + signal.SIGINT
    except ERRORS as error:
        sys.stderr.write(f"\nerror: {error}\n")
        code = 1
    if code == 0 and args.folder is None:
        shutil.rmtree(folder)
    else:
        say(f"\nlogs, lake and database are in {folder}")
    return code


@contextmanager
def lake_on_s3(folder: Path, *, wanted: bool) -> Iterator[Mapping[str, str]]:
    """What a user writes into .env for a lake in a store that runs meanwhile; nothing if not wanted."""
    if not wanted:
        yield {}
        return
    prepared()
    with running_store(folder) as store:
        os.environ.update(store.environment)  # this process looks into the lake, too
        of_aws = {name: text for name, text in store.environment.items() if name.startswith("AWS_")}
        yield of_aws | {"LAKE": f"s3a://{BUCKET}/lake"}


def rehearse(folder: Path, settings: Mapping[str, str], *, is_short: bool) -> int:
    """1 when a table is not what the oracle says; raises one of ERRORS when it came not so far."""
    steps = Steps(say)
    cluster = make_cluster(folder, settings, say)
    streams = [stream_named(name) for name in SHORT] if is_short else list(all_streams())
    landing = Landing(cluster.lake, folder / "staging", SHORT_SAMPLE if is_short else SAMPLE)
    scenario = Scenario(cluster, Folders(folder), landing, steps, streams, say)
    try:
        (short if is_short else whole)(scenario)
        with steps.step("stop all services"):
            heed_no_more_signals()
            cluster.services.down(LAST_PATIENCE)
        return 0 if show_outcome(scenario) else 1
    finally:
        heed_no_more_signals()
        cluster.services.end()
        show_figures(steps, cluster)


def make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # PostgreSQL runs as a user of its own below it; secrets in it have modes of their own.
    folder.chmod(0o755)
    if any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty: give a new folder with --folder")


def show_outcome(scenario: Scenario) -> bool:
    """Whether everything is equal and adds up."""
    lake, streams = scenario.lake, scenario.streams
    comparisons = [compare(lake, stream) for stream in streams]
    say("\n" + "\n".join(equality_lines(comparisons)))
    for stream in streams:
        counts = ", ".join(f"{count:,} {what}" for what, count in row_counts(lake, stream).items())
        say(f"  {stream.name}: {counts}")
    findings = [text for stream in streams for text in batch_findings(lake, stream)]
    for source, landed in sorted(scenario.landing.rows.items()):
        findings += row_findings(lake, source, landed)
    for finding in findings:
        sys.stderr.write(f"error: {finding}\n")
    return not findings and all(comparison.is_equal for comparison in comparisons)


def show_figures(steps: Steps, cluster: Cluster) -> None:
    keys = not_rehearsed_keys(load_compose(COMPOSE)["services"])
    for lines in (
        times_lines(steps.taken),
        memory_lines(cluster.services.peaks),
        not_rehearsed_lines(keys),
    ):
        say("\n" + "\n".join(lines))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # By that, and not by the clock, can rehearsals on different machines be compared.
    say(
        f"\n  {used.ru_utime + used.ru_stime:,.0f} seconds of CPU in all, on {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    sys.exit(main())
