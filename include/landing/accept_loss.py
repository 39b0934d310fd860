"""The way on where a source's topic or table has lost what was not taken: a batch of no rows that says where."""

from typing import NamedTuple

from include.lake.findings import Finding, record_findings
from include.lake.paths import Lake
from include.landing.connector import GoesOn
from include.landing.ingest_log import Clock, Entry, Ingestion, read_done
from include.landing.origin import connector_of
from include.settings import Source


class Loss(NamedTuple):
    """What would be given up, and where ingestion stands."""

    ingestion: Ingestion
    behind: GoesOn

    def text(self) -> str:
        """The plan, for people."""
        return (
            f"{self.behind.what}. It would go on behind {', '.join(map(str, self.behind.splits))}"
        )


def plan_loss(lake: Lake, source: Source) -> Loss | None:
    """The plan; None when nothing is lost. OriginError where nothing can be."""
    behind = connector_of(lake, source).goes_on(read_done(lake, source.name))
    return None if behind is None else Loss(Ingestion.open(lake, source), behind)


def accept_loss(loss: Loss) -> None:
    """Go on behind what is lost; the finding `rows_skipped` keeps what that was."""
    ingestion, behind = loss
    source = ingestion.source
    found = Finding(
        finding="rows_skipped",
        severity="warning",
        count=behind.lost,
        detail=f"{behind.what}. `./stateful ingest {source.name} --accept-loss` has gone on behind them",
        action="if the producers still have them, let them send them again; the same command closes this",
    )
    # First: once it is taken, nothing is lost any more.
    record_findings(ingestion.lake, None, source.name, [found])
    same = Clock()
    ingestion.again(lambda: ingestion.take(Entry(same, same, splits=behind.splits)))
