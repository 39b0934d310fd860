"""Which streaming query a checkpoint is of, and how far that has come, read without a JVM."""

import json

from pyarrow import fs

from include.lake.how_to_mend import damaged
from include.lake.paths import Lake


def query_id(lake: Lake, checkpoint: str) -> str | None:
    """The id that Spark gave the query when it made `checkpoint`; None when that is not there."""
    path = f"{checkpoint}/metadata"
    try:
        with lake.filesystem.open_input_stream(lake.path_in_filesystem(path)) as file:
            return str(json.loads(file.read())["id"])
    except FileNotFoundError:
        return None
    except (LookupError, TypeError, ValueError) as error:
        raise damaged(path, f"{path} is damaged ({error!r})") from error


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
