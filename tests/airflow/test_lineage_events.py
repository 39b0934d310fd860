"""Lineage by Airflow's provider for OpenLineage: its events, with ours in them, against the schema."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from include.lake.ops import append_ops
from tests.airflow_runs import run_script
from tests.dags import LATER, ROOT, land

pytestmark = [pytest.mark.airflow, pytest.mark.e2e]

SCHEMAS = ROOT / "tests" / "data" / "openlineage"
NAMESPACE = "tests"
# Ingestion by Airflow itself, without a JVM; then what `run_stream` would tell of the run in `ops`.
SCRIPT = """
import json, sys
from datetime import datetime
from airflow.dag_processing.dagbag import DagBag
from include.airflow.lineage import as_openlineage, lineage_of
from include.registry import stream_named
from openlineage.client.serde import Serde
options = json.loads(sys.argv[1])
dag = DagBag(options["file"]).dags["stream_user_counts"]
run = dag.test(
    logical_date=datetime.fromisoformat(options["logical_date"]),
    mark_success_pattern="^(?!ingest).*$",
)
states = {ti.task_id: ti.state for ti in run.get_task_instances()}
found = as_openlineage(lineage_of(options["lake"], stream_named("user_counts"), "run_stream", "d1"))
print("RESULT", json.dumps({"states": states, "run_stream": Serde.to_dict(found)}))
"""


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The provider in a folder of its own: it is no requirement of the project."""
    folder = tmp_path_factory.mktemp("openlineage")
    wanted = ["--require-hashes", "--requirement", str(Path(__file__).with_name("openlineage.txt"))]
    install = ["pip", "install", "--quiet", "--no-deps", "--target", str(folder), *wanted]
    subprocess.run([sys.executable, "-m", *install], check=True)
    return folder


def schema() -> Draft202012Validator:
    documents = [json.loads(file.read_text()) for file in sorted(SCHEMAS.glob("*.json"))]
    resources = [(each["$id"], Resource.from_contents(each)) for each in documents]
    event = {"$ref": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"}
    return Draft202012Validator(event, registry=Registry().with_resources(resources))


def facets_of(event: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each facet of a dataset, of which the schema of an event says little."""
    for dataset in (*event["inputs"], *event["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from (dataset.get(kind) or {}).items()


def check(event: dict[str, Any]) -> None:
    schema().validate(event)
    known = {json.loads(file.read_text())["$id"] for file in SCHEMAS.glob("*.json")}
    checked = 0
    for name, facet in facets_of(event):
        url, registry = facet["_schemaURL"], schema()._registry
        if url.partition("#")[0] in known:
            Draft202012Validator({"$ref": url}, registry=registry).validate(facet)
            checked += 1
        else:
            pytest.fail(f"{name} is of a schema that tests/data/openlineage lacks: {url}")
    assert checked > 2


def test_the_providers_events_have_what_our_tasks_have_read_and_written(
    airflow_environment,
    lake,
    provider,
    tmp_path,
):
    times = [f"2026-03-01T04:{minute:02}:00Z" for minute in (0, 30)]
    rows = [
        {"user_id": "ann", "event_type": "click", "value": 1.0, "event_time": at} for at in times
    ]
    land(lake, *map(json.dumps, rows), "no event")
    run = {"job": "run_stream", "subject": "user_counts", "outcome": "succeeded", "run_id": "r1"}
    at = {"started_at": LATER, "ended_at": LATER, "until": LATER - timedelta(hours=1)}
    append_ops(lake, "runs", [run | at | {"dag_run_id": "d1", "rows_in": 9, "rows_out": 4}])
    log = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(log), "append": True}
    environment = airflow_environment | {
        "PYTHONPATH": f"{ROOT}:{provider}",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": NAMESPACE,
        "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "60",
    }
    options = {"file": str(ROOT / "dags" / "streams.py"), "logical_date": LATER.isoformat()}
    told = run_script(SCRIPT, [json.dumps(options | {"lake": lake.root})], environment)
    assert told["states"]["ingest"] == "success"

    events = [json.loads(line) for line in log.read_text().splitlines()]
    (done,) = [
        event
        for event in events
        if event["job"]["name"].endswith(".ingest") and event["eventType"] == "COMPLETE"
    ]
    check(done)
    assert [each["name"] for each in done["inputs"]] == [lake.landing("user_events")]
    bronze, quarantine = done["outputs"]
    assert (bronze["namespace"], bronze["name"]) == ("file", lake.bronze("user_events"))
    assert bronze["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert quarantine["outputFacets"]["outputStatistics"]["rowCount"] == 1
    fields = {field["name"]: field for field in bronze["facets"]["schema"]["fields"]}
    assert fields["user_id"]["type"] == "string"
    assert fields["event_time"]["description"].startswith("When it happened")
    assert done["run"]["facets"]["statefulLake"]["rows_landed"] == 3

    ran = told["run_stream"]
    event = done | {"inputs": ran["inputs"], "outputs": ran["outputs"]}
    check(event | {"run": done["run"] | {"facets": ran["run_facets"]}})
    (table,) = ran["outputs"]
    assert table["name"] == lake.table("user_counts")
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert [each["name"] for each in ran["inputs"]] == [lake.bronze("user_events")]
    facts = ran["run_facets"]["statefulLake"]
    assert (facts["rows_in"], facts["until"]) == (9, "2026-03-01T04:00:00+00:00")
    assert facts["coverage"]["is_right"] is False  # there is none yet
