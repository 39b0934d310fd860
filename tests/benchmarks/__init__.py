"""Benchmarks: each has its own command, and needs an idle machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

OPTIONS = "SPARK_DRIVER_JAVA_OPTIONS"
_of_user = os.environ.get(OPTIONS)
# The JVM as Spark starts it. Ours for short runs has one compiler less, which would slow down the
# Scala contender most; and the figures of docs/scale.md are of keys by the million.
os.environ.setdefault(OPTIONS, "")


@contextmanager
def jvm_of_jobs() -> Iterator[None]:
    """The JVM as jobs start it, unless who started the benchmark said otherwise."""
    if _of_user is None:
        del os.environ[OPTIONS]
    try:
        yield
    finally:
        os.environ.setdefault(OPTIONS, "")
