"""The process that Spark asks for a stream's state variables imports only what names them."""

import subprocess
import sys
from pathlib import Path

from pyspark import cloudpickle

from include.fold.definition import BUCKET_STATE, KEYS
from include.streams.user_counts import FOLD
from spark_jobs.engines.deferred_processor import DeferredProcessor

ROOT = Path(__file__).parents[2]
ASKED = """
import pickle, sys

class Handle:
    def getValueState(self, name, schema):
        print(name)

pickle.load(sys.stdin.buffer).init(Handle())
print(*sys.modules)
"""


def test_who_is_asked_for_the_state_variables_imports_no_arrow():
    pickled = cloudpickle.dumps(DeferredProcessor(FOLD, 60_000_000, None))
    asked = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=ROOT, input=pickled, capture_output=True, check=True
    )
    *variables, modules = asked.stdout.decode().splitlines()
    assert variables == [KEYS, BUCKET_STATE]
    assert "include.streams.user_counts" in modules.split()
    assert not {"pyarrow", "numpy", "pandas"} & set(modules.split())
