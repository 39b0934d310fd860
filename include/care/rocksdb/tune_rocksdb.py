"""Tune the RocksDB settings of a stream: judge the trial that runs, or begin one.

Works from what runs have recorded, without a JVM. The decision is in `tuning.py`, the rules
in `rules.py`; every profile and verdict is in `ops/rocksdb_profiles`.
"""

from datetime import datetime

from include.care.rocksdb.history import read_history
from include.care.rocksdb.memory_limit import machine_memory_bytes
from include.care.rocksdb.profiles import failed_runs, read_profiles, record_profile, record_verdict
from include.care.rocksdb.tuning import Outcome, Record, decide
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.settings import Stream


def tune_rocksdb(
    lake: Lake,
    stream: Stream,
    dry_run: bool = False,
    machine_bytes: int | None = None,
    now: datetime | None = None,
) -> Outcome:
    """Decide what is next for the stream's settings, and put it on record.

    A dry run only decides. SettingsError when the stream's entry holds an impossible setting.
    `machine_bytes` and `now` are of this machine unless given.
    """
    record = Record(
        stream=stream,
        history=read_history(lake, stream, read_generations(lake, stream.name).number),
        profiles=read_profiles(lake, stream),
        failed=failed_runs(lake, stream),
        machine_bytes=machine_memory_bytes() if machine_bytes is None else machine_bytes,
    )
    outcome = decide(record)
    if not dry_run:
        _record(lake, stream, outcome, now)
    return outcome


def _record(lake: Lake, stream: Stream, outcome: Outcome, now: datetime | None) -> None:
    if outcome.kind == "proposed":
        record_profile(lake, stream, outcome.profile, outcome.evidence, now)
    elif outcome.kind in ("kept", "rolled_back") and outcome.judged is not None:
        record_verdict(lake, stream, outcome.judged, outcome.kind, outcome.text, now)
