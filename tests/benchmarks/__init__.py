"""Benchmarks: each has its own command, and needs an idle machine."""

import os

# The JVM as Spark starts it. Ours for short runs has one compiler less, which would slow down the
# Scala contender most; and the figures of docs/speed.md are of keys by the million.
os.environ.setdefault("SPARK_DRIVER_JAVA_OPTIONS", "")
