"""The Assets of a stream's Dag: where its source lies, bronze, and its table, in Airflow's graph.

Airflow imports this at each parse of the Dags.
"""

from pathlib import Path

from airflow.sdk import Asset

from include.origins import KafkaTopic
from include.settings import Source, Stream


def table_asset(stream: Stream, lake: str) -> Asset:
    """Its events say what a run has changed; downstream Dags are scheduled on it."""
    return Asset(name=stream.name, uri=as_uri(f"{lake}/tables/{stream.name}"))


def bronze_asset(source: Source, lake: str) -> Asset:
    return Asset(name=f"bronze/{source.name}", uri=as_uri(f"{lake}/bronze/{source.name}"))


def source_asset(source: Source, lake: str) -> Asset:
    """Files in landing, a topic or others' table: whoever fills it may have it as an outlet."""
    return Asset(name=f"source/{source.name}", uri=source_uri(source, lake))


def source_uri(source: Source, lake: str) -> str:
    if source.origin is None:
        return as_uri(f"{lake}/landing/{source.name}")
    if isinstance(source.origin, KafkaTopic):
        first = source.origin.servers.split(",")[0].strip()
        return f"kafka://{first}/{source.origin.topic}"
    return as_uri(source.origin.uri)


def as_uri(path: str) -> str:
    """A local path as a URI, and any other as it is."""
    return path if "://" in path else Path(path).absolute().as_uri()
