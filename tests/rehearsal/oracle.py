"""Do the tables hold what SQL over the landed files says, and was each row folded once?"""

from dataclasses import dataclass

from deltalake import DeltaTable

from include.fold.instants import micros_of
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.lake.read_tables import dataset_of
from include.lake.stream_result import last_run
from include.settings import Stream
from tests.landed_sql import oracle_rows, table_rows


@dataclass(frozen=True)
class Comparison:
    """A stream's table beside the oracle's rows."""

    stream: str
    rows: int
    missing: int
    unexpected: int

    @property
    def is_equal(self) -> bool:
        return self.rows > 0 and not self.missing and not self.unexpected


def compare(lake: Lake, stream: Stream) -> Comparison:
    """The table against SQL over all that has landed, until the stream's own `until`."""
    run = last_run(lake, stream.name)
    if run is None or run["until"] is None:
        return Comparison(stream.name, 0, 0, 0)
    expected = oracle_rows(lake, stream, micros_of(run["until"]))
    found = table_rows(lake, stream.name)
    missing, unexpected = (expected - found).total(), (found - expected).total()
    return Comparison(stream.name, found.total(), missing, unexpected)


def row_findings(lake: Lake, source: str, landed_rows: int) -> list[str]:
    """What does not add up between the files of a source and its tables; empty when well."""
    bronze = _events(lake, source)
    refused = DeltaTable(lake.quarantine(source)).to_pyarrow_dataset().count_rows()
    if bronze + refused == landed_rows:
        return []
    return [f"{source}: {landed_rows} rows landed, {bronze} in bronze and {refused} in quarantine"]


def batch_findings(lake: Lake, stream: Stream) -> list[str]:
    """Batches of the stream's generation that are missing, there twice, or do not add up."""
    generation = read_generations(lake, stream.name).current
    if generation is None:
        return [f"{stream.name} has no generation"]
    where = {"stream": stream.name, "generation": generation["generation"]}
    batches = sorted(
        read_ops(lake, "batches", where).to_pylist(), key=lambda batch: batch["batch_id"]
    )
    ids = [batch["batch_id"] for batch in batches]
    findings = []
    if ids != list(range(len(ids))):
        findings.append(f"{stream.name}: ops/batches has the batches {ids}")
    rows, bronze = row_counts(lake, stream), _events(lake, stream.source)
    if sum(rows.values()) != bronze:
        findings.append(f"{stream.name}: {bronze} rows in bronze, and of these {rows}")
    return findings


def row_counts(lake: Lake, stream: Stream) -> dict[str, int]:
    """What became of all rows that the stream's generation and its seed have read."""
    generation = read_generations(lake, stream.name).current or {}
    where = {"stream": stream.name, "generation": generation.get("generation")}
    batches = read_ops(lake, "batches", where).to_pylist()
    batches.sort(key=lambda batch: batch["batch_id"])
    counts = {
        what: (generation.get(f"seed_{seed}") or 0)
        + sum(batch[f"rows_{what}"] for batch in batches)
        for what, seed in (("folded", "events"), ("late", "late"), ("excluded", "excluded"))
    }
    pending = batches[-1]["rows_pending"] if batches else generation.get("seed_pending")
    return counts | {"pending": pending or 0}


def _events(lake: Lake, source: str) -> int:
    dataset = dataset_of(lake.bronze(source))
    return int(dataset.to_table(columns=["is_clock"]).column("is_clock").to_pylist().count(False))
