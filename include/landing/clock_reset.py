"""The commits that set the clock of bronze back, as bronze's own rows have them. Without a JVM."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.fold.instants import micros_of
from include.lake.how_to_mend import damaged
from include.savepoints.bronze_files import INSTANT, BronzeFiles, known, read_files

CLOCKS = pa.schema(
    [("ingested_at", INSTANT), ("arrival_watermark", INSTANT), ("commit_watermark", INSTANT)]
)


@dataclass(frozen=True)
class ClockReset:
    """A commit of bronze that set its clock (M) back, instants in microseconds."""

    to_us: int
    from_us: int
    at_us: int  # its `ingested_at`


def newest_reset(bronze: DeltaTable) -> ClockReset:
    """The newest commit that set M back; LakeError when no row of bronze says that of itself."""
    resets = resets_of(bronze)
    if not resets:
        told = f"the clock of {bronze.table_uri} was set back, says its log, but it has no such row"
        raise damaged(bronze.table_uri, f"{told}, so rows are missing")
    return resets[-1]


def resets_of(bronze: DeltaTable) -> list[ClockReset]:
    """All of them, in order.

    Not from the log, which is cleaned: only such a row has a watermark before the one that its
    commit had read.
    """
    set_back = pc.field("commit_watermark") < pc.field("arrival_watermark")
    batches = read_files(bronze, _with_clock_rows(bronze), CLOCKS.names, set_back)
    rows = pa.Table.from_batches(batches, CLOCKS).sort_by("ingested_at").to_pylist()
    names = ("commit_watermark", "arrival_watermark", "ingested_at")
    return [ClockReset(*(micros_of(row[name]) for name in names)) for row in rows]


def _with_clock_rows(bronze: DeltaTable) -> list[str]:
    """The files that may hold a clock row; of a file with none the log knows the events."""
    files = BronzeFiles(bronze)
    return files.paths_but(known(pc.is_valid(files.events())))
