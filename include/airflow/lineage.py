"""Lineage: what a task has read and written, for Airflow's provider for OpenLineage.

The provider is no requirement of ours: where it is installed it asks each of our tasks, and sends the
event itself (docs/lineage.md). Where it is not, nobody asks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from include.airflow.assets import as_uri, source_uri
from include.registry import source_named
from include.settings import Source, Stream
from include.stream_definition import load_definition

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from include.lake.columns import Column
    from include.lake.paths import Lake

FACET = "statefulLake"  # of runs: what `ops` has of them
MOST_SPANS = 10
INGEST_COUNTS = ("files_landed", "rows_landed", "rows_bronze", "rows_quarantined")
RUN_COUNTS = ("rows_in", "rows_folded", "rows_late", "rows_duplicate", "rows_rejected", "rows_out")
INTERVAL_COUNTS = ("rows_read", "rows_before", "rows_after", "rows_removed", "rows_added")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One thing read or written."""

    uri: str
    about: str
    columns: Sequence["Column"] = ()
    version: int | None = None  # of a Delta table, after the task
    rows: int | None = None  # that the task has read, or written
    checks: Sequence[Mapping[str, Any]] = ()  # of ops/data_checks: what was asked of its rows


@dataclass(frozen=True)
class TaskLineage:
    """What one task has read and written; `facts` is plain JSON."""

    inputs: Sequence[Dataset]
    outputs: Sequence[Dataset]
    facts: Mapping[str, Any]


def lineage_of(lake: str, stream: Stream, step: str, dag_run_id: str) -> TaskLineage | None:
    """Of a step of the stream's Dag in a Dag run; None of one that changes no table."""
    from include.lake.paths import open_lake

    opened = open_lake(lake)
    if step == "ingest":
        return _ingested(opened, source_named(stream.source), dag_run_id)
    if step == "run_stream":
        return _run(opened, stream, dag_run_id)
    if step in ("recompute_interval", "promote"):
        return _replaced(opened, stream, dag_run_id)
    return None


def _ingested(lake: "Lake", source: Source, dag_run_id: str) -> TaskLineage:
    from include.landing.bronze_tables import quarantine_columns

    runs = _runs(lake, "ingest_source", source.name, dag_run_id)
    counts = _sums(runs, INGEST_COUNTS)
    refused = lake.quarantine(source.name)
    landed = Dataset(
        uri=source_uri(source, lake.root), about=source.comment, rows=counts["rows_landed"]
    )
    quarantine = Dataset(
        uri=as_uri(refused),
        about=f"What is no event of {source.name}, with the reason",
        columns=quarantine_columns(source),
        version=_version(lake, refused),
        rows=counts["rows_quarantined"],
    )
    bronze = _bronze(lake, source, counts["rows_bronze"])
    return TaskLineage([landed], [bronze, quarantine], counts | {"run_ids": _ids(runs)})


def _run(lake: "Lake", stream: Stream, dag_run_id: str) -> TaskLineage:
    from include.lake.stream_result import succeeded_runs

    runs = succeeded_runs(lake, stream.name, dag_run_id)
    counts = _sums(runs, RUN_COUNTS)
    until = runs[-1]["until"] if runs else None
    facts = counts | {"run_ids": _ids(runs), "until": _text(until)}
    return _folded(lake, stream, facts, counts["rows_in"], counts["rows_out"])


def _replaced(lake: "Lake", stream: Stream, dag_run_id: str) -> TaskLineage:
    """A recompute's interval, and what a reseed at its end has replaced."""
    from include.lake.ops import read_ops

    where = {"stream": stream.name, "dag_run_id": dag_run_id}
    rows = read_ops(lake, "intervals", where).to_pylist()
    counts = _sums(rows, INTERVAL_COUNTS)
    intervals = [[_text(row["start"]), _text(row["until"])] for row in rows]
    facts = counts | {"run_ids": _ids(rows), "intervals": intervals}
    return _folded(lake, stream, facts, counts["rows_read"], counts["rows_after"])


def _folded(
    lake: "Lake", stream: Stream, facts: Mapping[str, Any], rows_in: int, rows_out: int
) -> TaskLineage:
    from include.fold.product_table import product_columns

    definition, path = load_definition(stream), lake.table(stream.name)
    table = Dataset(
        uri=as_uri(path),
        about=definition.title,
        columns=product_columns(definition.fold, definition.comments),
        version=_version(lake, path),
        rows=rows_out,
        checks=_checks(lake, stream, facts["run_ids"]),
    )
    bronze = _bronze(lake, source_named(stream.source), rows_in)
    return TaskLineage([bronze], [table], {**facts, "coverage": _coverage(lake, stream)})


def _bronze(lake: "Lake", source: Source, rows: int) -> Dataset:
    from include.landing.bronze_tables import bronze_columns

    path = lake.bronze(source.name)
    return Dataset(
        uri=as_uri(path),
        about=f"{source.comment}: the events as they were ingested, append-only",
        columns=bronze_columns(source),
        version=_version(lake, path),
        rows=rows,
    )


def _coverage(lake: "Lake", stream: Stream) -> dict[str, Any]:
    """Where the table is right now, and where not and why."""
    from include.coverage.segments import BEGINNING_US
    from include.coverage.table_coverage import table_coverage
    from include.fold.instants import instant_of

    judged = table_coverage(lake, stream)

    def text(at_us: int) -> str | None:
        return None if at_us == BEGINNING_US else _text(instant_of(at_us))

    coverage, until_us = judged.coverage, judged.coverage.until_us
    return {
        "until": None if until_us is None else text(until_us),
        "is_right": judged.is_right,
        "not_trusted": judged.doubt,
        "not_right": [
            {"from": text(span.from_us), "until": text(span.until_us), "why": span.reason}
            for span in coverage.wrong[:MOST_SPANS]
        ],
    }


def _runs(lake: "Lake", job: str, subject: str, dag_run_id: str) -> list[dict[str, Any]]:
    from include.lake.ops import read_ops

    where = {"job": job, "subject": subject, "dag_run_id": dag_run_id, "outcome": "succeeded"}
    return read_ops(lake, "runs", where).to_pylist()  # type: ignore[no-any-return]


def _checks(lake: "Lake", stream: Stream, run_ids: Iterable[str]) -> list[dict[str, Any]]:
    """The newest verdict of each check in these runs."""
    from include.lake.ops import read_ops

    if not stream.checks:
        return []
    rows = [
        row
        for run_id in run_ids
        for row in read_ops(lake, "data_checks", {"run_id": run_id}).to_pylist()
    ]
    rows.sort(key=lambda row: row["checked_at"])
    return list({row["check_name"]: row for row in rows}.values())


def _ids(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["run_id"] for row in rows]


def _sums(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, int]:
    return {name: sum(row[name] or 0 for row in rows) for name in names}


def _version(lake: "Lake", path: str) -> int | None:
    from include.lake.open_delta import delta_table

    return delta_table(path).version() if lake.is_delta_table(path) else None


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def as_openlineage(lineage: TaskLineage | None) -> "OperatorLineage | None":
    """In the provider's classes, which must be installed."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client import event_v2, facet_v2

    if lineage is None:
        return None

    def read(dataset: Dataset) -> event_v2.InputDataset:
        rows = facet_v2.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        return event_v2.InputDataset(
            *dataset_name(dataset.uri),
            facets=_facets(dataset),
            inputFacets={"inputStatistics": rows(rowCount=dataset.rows)},
        )

    def written(dataset: Dataset) -> event_v2.OutputDataset:
        rows = facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        return event_v2.OutputDataset(
            *dataset_name(dataset.uri),
            facets=_facets(dataset),
            outputFacets={"outputStatistics": rows(rowCount=dataset.rows)},
        )

    return OperatorLineage(
        inputs=[read(dataset) for dataset in lineage.inputs],
        outputs=[written(dataset) for dataset in lineage.outputs],
        run_facets={FACET: facet_v2.RunFacet().with_additional_properties(**lineage.facts)},
    )


def dataset_name(uri: str) -> tuple[str, str]:
    """Namespace and name by OpenLineage's conventions, as the provider has them of an Asset."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")


def _facets(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client import facet_v2

    schema = facet_v2.schema_dataset
    fields = [
        schema.SchemaDatasetFacetFields(name=c.name, type=c.type, description=c.comment)
        for c in dataset.columns
    ]
    documentation = facet_v2.documentation_dataset.DocumentationDatasetFacet
    facets: dict[str, Any] = {"documentation": documentation(description=dataset.about)}
    if fields:
        facets["schema"] = schema.SchemaDatasetFacet(fields=fields)
    if dataset.version is not None:
        version = facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet
        facets["version"] = version(datasetVersion=str(dataset.version))
    if dataset.checks:
        facets["dataQualityAssertions"] = _assertions(dataset.checks)
    return facets


def _assertions(checks: Sequence[Mapping[str, Any]]) -> Any:
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality

    return quality.DataQualityAssertionsDatasetFacet(
        assertions=[
            quality.Assertion(assertion=row["check_name"], success=row["is_met"]) for row in checks
        ]
    )
