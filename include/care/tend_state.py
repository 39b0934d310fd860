"""What the Dag does after a run, without Airflow: `make stream`, `make tend`.

    python -m include.care.tend_state --stream user_counts --lake /some/folder --dry-run

The exit code is 1 when the check found something that needs a person, or a job failed.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from include.care.check_checkpoint import check_checkpoint, record_check
from include.care.check_report import format_check
from include.care.rocksdb.outcome_table import format_outcome
from include.care.rocksdb.tune_rocksdb import tune_rocksdb
from include.lake.paths import Lake, LakeError, open_lake
from include.registry import stream_named
from include.settings import SettingsError, Stream, default_lake
from include.spark.local_jobs import absolute_lake, run_job, say


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


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stream", required=True, help="a stream of include/streams")
    parser.add_argument("--lake", default=default_lake(), help="the lake's folder or URI")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done")
    parser.add_argument("--compact", action="store_true", help="whatever would be gained")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        lake, stream = open_lake(absolute_lake(args.lake)), stream_named(args.stream)
        return tend_state(lake, stream, args.dry_run, args.compact)
    except (SettingsError, LakeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
