"""A world whose jobs run on Spark; its workers do not find the streams' files."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from include.settings import Source
from spark_jobs.engines.spark_engine import SparkEngine
from tests.simulator.shapes import FLAT, Shape
from tests.simulator.stream_files import KINDS
from tests.simulator.world import SOURCE, World, open_world


@contextmanager
def spark_world(
    spark: SparkSession, source: Source = SOURCE, shape: Shape = FLAT, folder: Path | None = None
) -> Iterator[World]:
    """See `open_world`."""
    with open_world(source, shape, folder) as world:
        world.engine = SparkEngine(spark)
        deploy_file = world.deploy

        def deploy(kind: str, variant: str) -> None:
            deploy_file(kind, variant)
            module = importlib.import_module(f"include.streams.{world.streams[kind].name}")
            cloudpickle.register_pickle_by_value(module)

        world.deploy = deploy  # type: ignore[method-assign]
        for kind in KINDS:
            world.deploy(kind, "a")
        yield world
