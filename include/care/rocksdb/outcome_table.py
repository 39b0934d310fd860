"""What the tuner decided, and where a batch's time goes, as a table for a task log."""

from collections.abc import Iterator, Sequence
from statistics import median

from include.care.rocksdb.history import Batch
from include.care.rocksdb.settings import SETTINGS, TUNED
from include.care.rocksdb.tuning import Outcome
from include.text_table import bytes_text, text_table

TITLES = {
    "proposed": "a change to try",
    "kept": "the trial to be kept",
    "rolled_back": "the trial to be rolled back",
    "waiting": "waiting",
    "nothing": "nothing to do",
}
TIMES = {
    "batch_ms": "the whole batch",
    "load_ms": "load of the stores",
    "replay_ms": "- of it replay of change logs",
    "get_ms": "get",
    "put_ms": "put",
    "flush_ms": "flush",
    "snapshot_ms": "making snapshots",
    "upload_ms": "upload",
    "compaction_ms": "compaction, beside the batch",
}
SIZES = {
    "bytes_written": "written to the stores",
    "bytes_rewritten": "flushed and compacted",
    "sst_bytes": "files of the stores",
    "store_memory": "memory of the stores",
    "rss_bytes": "memory of the run, JVM and Python",
}


def format_outcome(outcome: Outcome) -> str:
    """The outcome as lines for people: decision, settings, figures of the newest batches."""
    return "\n".join(_lines(outcome))


def _lines(outcome: Outcome) -> Iterator[str]:
    yield f"RocksDB settings: {TITLES[outcome.kind]}"
    yield f"  {outcome.text}"
    number = outcome.profile.number
    new = "" if outcome.profile.is_recorded else ", which the next run records"
    yield f"the next run has profile {number} ({outcome.profile.verdict}{new})"
    yield from text_table(("setting", "value", "by"), list(_settings(outcome)), left=(0, 1, 2))
    if outcome.batches:
        yield f"medians of the newest {len(outcome.batches)} batches with data of one profile"
        yield from text_table(("", ""), list(_figures(outcome.batches)), left=(0,))[1:]


def _settings(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """What is tuned, and what is held; the rest is as include/care/rocksdb/settings.py says."""
    profile = outcome.profile
    for name in sorted(set(TUNED) | profile.held, key=list(SETTINGS).index):
        yield name, profile.settings[name], "hand" if name in profile.held else "tuner"


def _figures(batches: Sequence[Batch]) -> Iterator[tuple[str, ...]]:
    def typical(figure: str) -> float:
        return median(batch.figures[figure] for batch in batches)

    for figure, title in TIMES.items():
        yield title, f"{typical(figure):,.0f} ms"
    yield "change logs replayed, all partitions", f"{typical('logs_replayed'):,.0f}"
    for figure, title in SIZES.items():
        yield title, bytes_text(typical(figure))
