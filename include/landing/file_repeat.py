"""Landed files that gave no event when their batch was begun, and may have been mended since.

A batch that is repeated has the rows that it had. What has come of a file since then is for
`./stateful reingest` to take in, which reads those that were refused as a whole once more.
"""

from collections.abc import Callable, Collection, Iterator

import pyarrow.compute as pc

from include.fold.instants import instant_of
from include.lake.paths import Lake
from include.lake.read_tables import dataset_of
from include.landing.batch import KEPT, Batch
from include.landing.ingest_position import is_batch_in
from include.landing.parse_files import ACCEPTED, WHOLE_FILE, Outcome, file_outcome, refused
from include.landing.refusals import UNREADABLE_FILE, RefusedError
from include.settings import Source


def files_without_events(lake: Lake, source: Source, batch: Batch) -> frozenset[str]:
    """Those of a batch that was begun, once a table has something of it; of any other none."""
    if not is_batch_in(lake, source.name, "bronze", batch):
        # Which is written first: so what quarantine has is all of the batch.
        return frozenset(batch.files if is_batch_in(lake, source.name, "quarantine", batch) else ())
    rows = dataset_of(lake.bronze(source.name)).to_table(
        columns=["source_file"], filter=pc.field("source_file").isin(batch.files)
    )
    return frozenset(batch.files) - {*rows["source_file"].unique().to_pylist()}


def rows_kept(lake: Lake, source: Source, table: str, batch: Batch) -> int:
    """How many rows of a batch bronze or quarantine has of files that are not read any more."""
    names = [name for name, mark in batch.given_up.items() if mark == KEPT]
    if not names:
        return 0
    theirs = pc.field("source_file").isin(names)
    if table == "quarantine":  # a re-ingestion may have added rows, under the same name
        theirs &= pc.field("ingested_at") == instant_of(batch.ingested_at_us)
    return int(dataset_of(f"{lake.root}/{table}/{source.name}").count_rows(filter=theirs))


def as_begun(
    without_events: Collection[str], read: Callable[[str], Iterator[Outcome]], name: str
) -> Iterator[Outcome]:
    """The outcomes that `read` gives of a file; but if it has events now, and had none, a refusal."""
    if name not in without_events:
        return read(name)
    outcomes = list(read(name))
    if all(outcome["kind"] != ACCEPTED for outcome in outcomes):
        return iter(outcomes)
    why = RefusedError(UNREADABLE_FILE, "it had no event when its batch was begun, and has now")
    refusal = refused(name, WHOLE_FILE, why, None) | {"source_file": name}
    return iter([refusal, file_outcome(name, 1)])
