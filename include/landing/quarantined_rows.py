"""What a batch refused, told when it is much: nobody looks into quarantine unasked."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import pyarrow.compute as pc

from include.fold.admission import instant_of
from include.lake.delta_log import dataset_of
from include.lake.findings import Finding
from include.lake.paths import Lake
from include.landing.batch import KEPT, Batch
from include.landing.ingest_position import is_batch_in
from include.landing.landed_values import UNREADABLE_FILE, RefusedError, shown
from include.landing.parse_files import ACCEPTED, WHOLE_FILE, Outcome, file_outcome, refused
from include.settings import Source
from include.text_table import counted


class Refusals(NamedTuple):
    """Those of a batch for one reason."""

    code: str
    rows: int  # a file that is refused as a whole counts as one
    file: str  # the first that has one


def quarantine_findings(source: Source, landed: int, refusals: Sequence[Refusals]) -> list[Finding]:
    """A warning where more than `max_quarantined` of the `landed` rows were refused, or a whole file.

    How many rows such a file has is not known, so one is always told of.
    """
    refused = sum(of_code.rows for of_code in refusals)
    is_file = any(of_code.code == UNREADABLE_FILE for of_code in refusals)
    if not is_file and refused <= source.max_quarantined * landed:
        return []
    most_first = sorted(refusals, key=lambda of_code: (-of_code.rows, of_code.code))
    return [
        Finding(
            finding="rows_quarantined",
            severity="warning",
            count=refused,
            figure=refused / landed,
            limit=source.max_quarantined,
            detail=f"of {counted(landed, 'row')} that landed for {source.name}, {refused} went to "
            f"quarantine: {', '.join(map(_told, most_first))}",
            action=f"quarantine/{source.name} has each with its reason. Mend what writes them, the "
            f"files, or the source's entry; then `./stateful reingest {source.name}` takes them in",
        )
    ]


def _told(of_code: Refusals) -> str:
    return f"{of_code.rows} {of_code.code} (first in {shown(of_code.file)})"


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
