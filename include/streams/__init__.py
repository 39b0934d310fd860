"""Your streams, a file each, and their sources in `sources.py`: here, or in the folder STREAMS."""

import os
from pathlib import Path

# Below the project, or anywhere; messages name files by it.
FOLDER, TESTS = "include/streams", "tests/streams"
if own := os.environ.get("STREAMS"):
    # Jobs and Airflow, which inherit this, have other working directories.
    FOLDER = os.environ["STREAMS"] = str(Path(own).expanduser().absolute())
    __path__, TESTS = [FOLDER], f"{FOLDER}/tests"
