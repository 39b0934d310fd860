"""Where a source's rows come from: its connector, what waits, going on behind a loss, or anew.

Connectors are imported when needed: the client of a topic is a package that no other source needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from include.catalogue import FINDINGS
from include.connectors import DeltaTable, KafkaTopic
from include.ingest.amendments import ERASURE, amendments_of
from include.ingest.connector import (
    Batch,
    Connector,
    ConnectorError,
    Done,
    Lag,
    Loss,
    NextSplits,
    ReadSplit,
    Split,
    one_commit,
)
from include.ingest.ingest_log import Entry, Ingestion, SourceWatermark, read_done
from include.ingest.landed_file import landed_files, landing_root
from include.ingest.parse_files import outcomes_of_file
from include.job import nothing_running
from include.lake.delta_log import is_there, move_aside
from include.lake.errors import OF_SOURCE, LakeError
from include.lake.ops import record_findings
from include.lake.paths import Lake
from include.registry import streams_of
from include.settings import Source
from include.text_table import counted


@dataclass(frozen=True)
class LandedFiles:
    """The connector of files in landing."""

    lake: Lake
    source: Source

    @cached_property
    def files(self) -> list[Split]:
        return landed_files(self.lake, self.source.name)

    def next_splits(self, done: Done) -> NextSplits:
        return NextSplits(sorted(one_commit(self._waiting(done), self.source)))

    def lag(self, done: Done) -> Lag:
        sizes = [file.bytes for file in self._waiting(done)]
        return Lag(len(sizes), sum(sizes) <= self.source.spark_bytes)

    def loss(self, done: Done) -> Loss | None:
        raise ConnectorError(
            f"{place_of(self.source)} loses nothing: a landed file is taken whole, or not at all",
            code="wrong_argument",
            subject=self.source.name,
        )

    def reader(self, batch: Batch) -> ReadSplit:
        root = landing_root(self.lake, self.source.name)
        return partial(outcomes_of_file, self.lake, root, self.source, batch)

    def _waiting(self, done: Done) -> list[Split]:
        return [file for file in self.files if file.name not in done.names]


def connector_of(lake: Lake, source: Source) -> Connector:
    """Where its rows come from. The one place that asks what that is."""
    if isinstance(source.connector, KafkaTopic):
        from include.ingest.kafka import TopicConnector

        return TopicConnector(source, source.connector)
    if isinstance(source.connector, DeltaTable):
        from include.ingest.delta_versions import TableConnector

        return TableConnector(source, source.connector)
    return LandedFiles(lake, source)


def waiting(lake: Lake, source: Source) -> int:
    """The number of files, or offsets, that no batch has; 0: nothing to ingest."""
    return connector_of(lake, source).lag(read_done(lake, source.name)).waiting


def lag_of_run(lake: Lake, source: Source) -> Lag:
    """What a run has to take, or to fail for: it does that with a row in `ops/runs`."""
    try:
        return connector_of(lake, source).lag(read_done(lake, source.name))
    except ConnectorError:
        return Lag(1, is_little=True)


def place_of(source: Source) -> str:
    """Where rows of the source are before they are taken, for people."""
    return f"landing/{source.name}" if source.connector is None else source.connector.place


def plan_loss(lake: Lake, source: Source) -> Loss | None:
    return connector_of(lake, source).loss(read_done(lake, source.name))


def accept_loss(lake: Lake, source: Source, behind: Loss) -> None:
    """Go on behind what is lost, by a batch of no rows; the finding `rows_skipped` keeps it."""
    ingestion = Ingestion(lake, source)
    said = f"{behind.what}. `./stateful ingest {source.name} --accept-loss` has gone on behind them"
    found = FINDINGS["rows_skipped"].found(source.name, said, count=behind.lost)
    # First: once it is taken, nothing is lost any more.
    record_findings(lake, None, source.name, [found])
    ingestion.again(
        lambda: ingestion.commit(Entry(SourceWatermark(), SourceWatermark(), splits=behind.splits))
    )


# The tables that a source is ingested into stand and fall together, with the ingest log.
def plan_from_scratch(lake: Lake, source: Source) -> str:
    """Say what is moved, and what follows; LakeError while a key is being erased."""
    _refuse_erasing(lake, source.name)
    return "\n".join(_moves(lake, source))


def move_source_aside(lake: Lake, source: Source) -> None:
    """Move its tables, or what a move that was cut off has left, once no job of it runs."""
    with nothing_running(lake, [source.name], streams_of(source.name)):
        _refuse_erasing(lake, source.name)
        move_aside(lake, [f"{part}/{source.name}" for part in OF_SOURCE])


def _refuse_erasing(lake: Lake, source: str) -> None:
    try:
        amendment = amendments_of(lake, source).open
    except LakeError:
        return  # of an ingest log that cannot be read nothing is left to go on with
    if amendment is not None and amendment.kind == ERASURE:
        raise amendment.unfinished("ingestion from scratch")


def _moves(lake: Lake, source: Source) -> Iterator[str]:
    moved = [
        f"{part}/{source.name}" for part in OF_SOURCE if is_there(lake, f"{part}/{source.name}")
    ]
    named = ", ".join(moved) or "nothing"
    yield f"moves {named} into set_aside/, and ingests {place_of(source)} anew"
    yield _not_again(lake, source)
    yield "rows that were corrected and taken in by reingest have to be so again"
    for stream in streams_of(source.name):
        # By what is there: what is recorded of it may be what is damaged.
        if any(is_there(lake, f"{kind}/{stream.name}") for kind in ("checkpoints", "tables")):
            yield f"{stream.name} stops until it is made anew: `./stateful rebuild {stream.name} --apply`"


def _not_again(lake: Lake, source: Source) -> str:
    """What was taken, and nobody can take again."""
    if source.connector is not None:
        return f"what {source.name} comes from no longer has does not come again"
    try:
        done = read_done(lake, source.name)
    except LakeError:
        return "of files that are no longer in landing the rows do not come again"
    gone = len(done.names - {file.name for file in landed_files(lake, source.name)})
    if not gone:
        return "all files that were taken are still in landing"
    return f"{counted(gone, 'file')} of those taken are not in landing any more: DATA IS LOST"
