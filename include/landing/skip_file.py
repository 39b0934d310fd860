"""The way out where a landed file that a batch has begun with is gone, or cannot be read: give it up.

The batch goes on without it, in the next run. Quarantine has the file as a whole, with that reason;
unless the tables have what an earlier run had read of it.
"""

from typing import NamedTuple

import pyarrow.compute as pc
from deltalake import CommitProperties, write_deltalake

from include.lake.commits import transaction
from include.lake.delta_log import table_to_write
from include.lake.findings import Finding, record_findings
from include.lake.ops import with_all_columns
from include.lake.paths import Lake, LakeError
from include.lake.read_tables import dataset_of
from include.landing.batch import GIVEN_UP, KEPT, Batch
from include.landing.ingest_position import app_id, is_batch_in, read_position
from include.landing.ingest_seal import refuse_changed_tables, seal_tables
from include.landing.origin import place_of
from include.landing.position_rows import plan_rows
from include.landing.refusals import shown
from include.settings import Source


class FilePlan(NamedTuple):
    """A file of the batch that was begun, and the mark with which it is given up."""

    batch: Batch
    name: str
    mark: str

    def text(self) -> str:
        """For people."""
        told = f"{shown(self.name)} of batch {self.batch.number} is given up: it is not read any more. "
        if self.mark == GIVEN_UP:
            return f"{told}Quarantine will have it as a whole"
        return (
            f"{told}The tables keep what a run has written of it; its refused rows may be missing in "
            "quarantine"
        )

    def action(self) -> str:
        """What is to be done when it is given up."""
        if self.mark == GIVEN_UP:
            return (
                "if the producer has it still, let it land under another name; or put it back, and "
                "`./stateful reingest` takes it in. Not both: each row would be there twice"
            )
        return (
            "do not let it land under another name: what bronze has of it would be there twice. If "
            "refused rows of it are missing, let the producer send these alone"
        )


def plan_skip_file(lake: Lake, source: Source, name: str) -> FilePlan | None:
    """How it would be given up; None when it is already.

    LakeError for a file that no batch has begun with: such a one stops nothing.
    """
    if source.origin is not None:
        raise LakeError(
            f"{place_of(source)} has no landed files. To go on behind what is lost there",
            code="wrong_argument",
            subject=source.name,
            command=f"./stateful skip-lost {source.name}",
        )
    refuse_changed_tables(lake, source)
    position = read_position(lake, source.name)
    batch = position and position.open
    if not batch or name not in batch.files:
        has = f"has {len(batch.files)} files, not this one" if batch else "is none"
        raise LakeError(
            f"{shown(name)} stops nothing: of {source.name} the batch that was begun and is not done "
            f"{has}. Give its name below {place_of(source)}, as the error of the run has it",
            code="wrong_argument",
            subject=name,
        )
    return (
        None if name in batch.given_up else FilePlan(batch, name, _mark(lake, source, batch, name))
    )


def _mark(lake: Lake, source: Source, batch: Batch, name: str) -> str:
    """KEPT when the tables have all of it, or bronze its events."""
    if is_batch_in(lake, source.name, "quarantine", batch):
        return KEPT
    bronze = dataset_of(lake.bronze(source.name))
    return KEPT if bronze.count_rows(filter=pc.field("source_file") == name) else GIVEN_UP


def apply_skip_file(lake: Lake, source: Source, plan: FilePlan) -> None:
    """Mark it in the position; the finding `file_given_up` keeps that it was."""
    _record(lake, source, plan)  # first: once it is marked, nobody would come to say so
    batch = plan.batch
    mark = Batch(
        batch.position_id, batch.number, (f"{plan.mark}{plan.name}",), batch.ingested_at_us
    )
    table = table_to_write(lake.ingested_files(source.name))
    app = app_id(source.name, "given up", batch.position_id)
    once = CommitProperties(max_commit_retries=0, app_transactions=[transaction(app, batch.number)])
    rows = with_all_columns(plan_rows(mark), table)
    write_deltalake(table, rows, mode="append", commit_properties=once)
    seal_tables(lake, source.name)


def _record(lake: Lake, source: Source, plan: FilePlan) -> None:
    found = Finding(
        finding="file_given_up",
        severity="warning",
        count=1,
        detail=plan.text(),
        action=plan.action(),
    )
    record_findings(lake, None, source.name, [found])
