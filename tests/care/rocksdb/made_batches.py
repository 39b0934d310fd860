"""Batches of made-up figures, for what compares them."""

from collections.abc import Sequence

from include.care.rocksdb.history import Batch


def batch(batch_id: int, value: float, logs: int = 8, rows: int = 1_000, **figures: float) -> Batch:
    """One batch; `value` is of the figure "bytes_rewritten", in thousands."""
    known = {"logs_replayed": logs, "bytes_rewritten": 1_000 * value, "store_ms": 1_000.0}
    return Batch(
        batch_id=batch_id,
        run_id=f"run-{batch_id}",
        profile=1,
        rows_in=rows,
        figures=known | figures,
    )


def batches(values: Sequence[float], **figures: float) -> list[Batch]:
    """Batches that are all like each other."""
    return [batch(number, value, **figures) for number, value in enumerate(values, 1)]
