"""Whether a table that a stream writes can be read, and gone on from: its log, and all of its rows."""

import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from include.lake.delta_log import (
    commit_hash,
    dataset_of,
    first_line,
    is_of_machine,
    read_actions,
    table_to_read,
    unbroken,
)
from include.lake.errors import LakeError
from include.lake.paths import Lake


def why_no_log(lake: Lake, path: str) -> str | None:
    """Why the log of the table at `path` is none: nobody can write to it, either. None: it is one, or there
    is no table."""
    if not lake.is_delta_table(path):
        return None
    try:
        version = table_to_read(path).version()
    except DeltaError as error:
        if is_of_machine(error):
            raise
        return f"its log cannot be read: {first_line(error)}"
    if commit_hash(lake, path, version) is None:  # the newest is never cleaned up
        return f"its log has lost the commit of its newest version, {version}"
    # delta-rs takes the schema from the sum beside the commit, which Spark does not believe.
    if version == 0 and not read_actions(lake, path, 0):
        return "its first commit is empty, as after a power cut"
    return None


def why_unreadable(lake: Lake, path: str) -> str | None:
    """The same of all its rows, too, whose pages are checked: it reads them."""
    if (why := why_no_log(lake, path)) is not None or not lake.is_delta_table(path):
        return why
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    try:
        with unbroken(path):
            for _ in dataset_of(path).to_batches(fragment_scan_options=checked):
                pass
    except LakeError as error:
        return first_line(error.__cause__ or error)
    return None
