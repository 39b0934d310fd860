"""delta-rs panics: no `Exception`, so without `panics_as_errors` nothing that ends a job sees it."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from include.cli import commands
from include.cli.__main__ import main
from include.job import exit_with_main, recorded_run
from include.lake import delta_log as open_delta
from include.lake.delta_log import AGAIN, open_table, unbroken
from include.lake.ops import read_ops
from include.lake.paths import Lake
from tests.refused import refused

# By its name alone such an exception is known: each library of Rust's has a class of its own.
Panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
SAID = "index out of bounds: the len is 1 but the index is 7"
# delta-rs begins what it waits with at the first read of a process, and panics if it cannot.
FEW_FILES = """
import os, resource, sys
from include.job import exit_with_main
from include.lake.delta_log import open_table
open_files = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
exit_with_main(lambda: open_table(sys.argv[1]))
"""


def panic(*_: object, **__: object) -> int:
    raise Panic(SAID)


def test_a_panic_of_delta_rs_is_an_error_in_one_line(tmp_path: Path):
    write_deltalake(tmp_path, pa.table({"n": [1]}))
    command = [sys.executable, "-c", FEW_FILES, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    last = ended.stderr.splitlines()[-1]
    assert (ended.returncode, last.endswith(AGAIN)) == (1, True), last
    assert "Too many open files" in last


def test_of_a_table_at_which_delta_rs_panics_the_way_out_is_told(lake: Lake, monkeypatch):
    monkeypatch.setattr(open_delta, "DeltaTable", panic)
    path = lake.bronze("signals")
    told = {
        "subject": "bronze/signals",
        "command": "./stateful ingest signals --from-scratch --apply",
    }
    with refused("unreadable_table", **told):
        open_table(path)
    with refused("unreadable_table", **told), unbroken(path):
        panic()


def test_a_run_that_a_panic_ends_is_recorded(lake: Lake):
    with pytest.raises(DeltaError), recorded_run(lake, "run_stream", "a", None):
        panic()
    (run,) = read_ops(lake, "runs").to_pylist()
    assert (run["outcome"], SAID in run["error"]) == ("failed", True)


def test_a_panic_anywhere_is_one_line(lake: Lake, monkeypatch, capsys):
    monkeypatch.setattr(commands.run_local, "run_stream", panic)
    assert main(["stream", "user_counts", "--lake", lake.root]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    with pytest.raises(SystemExit):
        exit_with_main(panic)
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert SAID in line


def test_what_a_person_interrupts_stays_so(lake: Lake):
    with pytest.raises(KeyboardInterrupt), unbroken(lake.bronze("signals")):
        raise KeyboardInterrupt
