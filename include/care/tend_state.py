"""What the Dag does after a run, without Airflow: `./stateful stream`, `./stateful care`.

The exit code is 1 when the check found something that needs a person, or a job failed.
"""

from include.care.check_checkpoint import check_checkpoint, record_check
from include.care.check_report import format_check
from include.care.rocksdb.outcome_table import format_outcome
from include.care.rocksdb.tune_rocksdb import tune_rocksdb
from include.lake.paths import Lake
from include.settings import Stream
from include.spark.local_jobs import run_job, say


def tend_state(lake: Lake, stream: Stream, dry_run: bool = False, compact_now: bool = False) -> int:
    """Check the checkpoint, compact the state if that gains enough, and tune; the exit code.

    `dry_run` only shows what would be done. `compact_now` compacts whatever the check says of
    the gain.
    """
    checked = check_checkpoint(lake, stream)
    say(format_check(checked))
    if not dry_run:
        record_check(lake, checked)
    if any(finding.severity == "error" for finding in checked.findings):
        return 1
    code = 0
    if not dry_run and (checked.compaction.needed or compact_now):
        code = run_job("compact_state", ["--stream", stream.name, "--lake", lake.root], stream)
    if code == 0:
        say(f"\n{format_outcome(tune_rocksdb(lake, stream, dry_run))}")
    return code
