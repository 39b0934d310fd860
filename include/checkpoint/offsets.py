"""How far a streaming query has come, read from its checkpoint without a JVM."""

from pyarrow import fs

from include.lake.paths import Lake


def newest_planned(lake: Lake, checkpoint: str) -> int | None:
    """The newest batch that a query on `checkpoint` has begun; None before the first."""
    return _newest_batch(lake, f"{checkpoint}/offsets")


def newest_committed(lake: Lake, checkpoint: str) -> int | None:
    """The newest batch that a query on `checkpoint` has finished; None before the first."""
    return _newest_batch(lake, f"{checkpoint}/commits")


def _newest_batch(lake: Lake, log: str) -> int | None:
    selector = fs.FileSelector(lake.path_in_filesystem(log), allow_not_found=True)
    names = (info.base_name for info in lake.filesystem.get_file_info(selector))
    return max((int(name) for name in names if name.isdecimal()), default=None)
