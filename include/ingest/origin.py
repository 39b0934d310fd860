"""The connector of a source, and what is asked of it most.

Connectors are imported when they are needed: the client of a topic is a package that no other source needs.
"""

from dataclasses import dataclass
from functools import cached_property, partial

from include.catalogue import FINDINGS
from include.ingest.connector import (
    Batch,
    Connector,
    Cut,
    Done,
    GoesOn,
    Lag,
    OriginError,
    ReadSplit,
    Split,
    one_commit,
)
from include.ingest.ingest_log import Clock, Entry, Ingestion, read_done
from include.ingest.landed_file import landed_files, landing_root
from include.ingest.parse_files import outcomes_of_file
from include.lake.findings import record_findings
from include.lake.paths import Lake
from include.origins import DeltaTable, KafkaTopic
from include.settings import Source


@dataclass(frozen=True)
class LandedFiles:
    """The connector of files in landing."""

    lake: Lake
    source: Source

    @cached_property
    def files(self) -> list[Split]:
        """The older first."""
        return landed_files(self.lake, self.source.name)

    def cut(self, done: Done) -> Cut:
        return Cut(sorted(one_commit(self._waiting(done), self.source)))

    def lag(self, done: Done) -> Lag:
        sizes = [file.bytes for file in self._waiting(done)]
        return Lag(len(sizes), sum(sizes) <= self.source.spark_bytes)

    def goes_on(self, done: Done) -> GoesOn | None:
        raise OriginError(
            f"{place_of(self.source)} loses nothing: a landed file is taken as a whole, or not at all",
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
    if isinstance(source.origin, KafkaTopic):
        from include.ingest.kafka_offsets import TopicConnector

        return TopicConnector(source, source.origin)
    if isinstance(source.origin, DeltaTable):
        from include.ingest.delta_versions import TableConnector

        return TableConnector(source, source.origin)
    return LandedFiles(lake, source)


def waiting(lake: Lake, source: Source) -> int:
    """The number of files, or offsets, that no batch has; 0: nothing to ingest."""
    return connector_of(lake, source).lag(read_done(lake, source.name)).waiting


def lag_of_run(lake: Lake, source: Source) -> Lag:
    """What a run has to take, or to fail for: it does that with a row in `ops/runs`."""
    try:
        return connector_of(lake, source).lag(read_done(lake, source.name))
    except OriginError:
        return Lag(1, is_little=True)


def place_of(source: Source) -> str:
    """Where rows of the source are before they are taken, for people."""
    return f"landing/{source.name}" if source.origin is None else source.origin.place


def plan_loss(lake: Lake, source: Source) -> GoesOn | None:
    """What would be given up; None when nothing is lost. OriginError where nothing can be."""
    return connector_of(lake, source).goes_on(read_done(lake, source.name))


def accept_loss(lake: Lake, source: Source, behind: GoesOn) -> None:
    """Go on behind what is lost, by a batch of no rows; the finding `rows_skipped` keeps what that was."""
    ingestion = Ingestion.open(lake, source)
    said = f"{behind.what}. `./stateful ingest {source.name} --accept-loss` has gone on behind them"
    found = FINDINGS["rows_skipped"].found(source.name, said, count=behind.lost)
    # First: once it is taken, nothing is lost any more.
    record_findings(lake, None, source.name, [found])
    ingestion.again(lambda: ingestion.take(Entry(Clock(), Clock(), splits=behind.splits)))
