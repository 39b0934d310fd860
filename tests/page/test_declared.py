"""Streams as their files are by now, in a process that has read them before."""

import subprocess
import sys
from pathlib import Path

STREAM = """
from dataclasses import replace
from include.streams.user_counts import STREAM as COUNTS
STREAM = replace(COUNTS, name="", schedule="{}")
"""
SCRIPT = """
import sys
from pathlib import Path
import include.streams
folder, text = Path(sys.argv[1]), sys.argv[2]
include.streams.__path__[0:0] = [str(folder)]
from include.page.declared import declared
from include.lake.errors import SettingsError

def found():
    return {s.name: s.schedule for s in declared().streams}.get("zz_new")

assert found() is None
(folder / "zz_new.py").write_text(text.format("1 * * * *"))
assert found() == "1 * * * *"
(folder / "zz_new.py").write_text(text.format("11 * * * *"))
assert found() == "11 * * * *"
(folder / "zz_new.py").write_text("1 / 0  # wrong")
assert found() is None
assert "zz_new.py: ZeroDivisionError" in declared().wrong[0]
(folder / "zz_new.py").unlink()
assert not declared().wrong
(folder / "sources.py").write_text("nothing")
for _ in range(2):
    try:
        declared()
    except SettingsError as error:
        assert "sources.py: NameError" in str(error), error
    else:
        raise AssertionError("it is wrong")
(folder / "sources.py").unlink()
assert len(declared().streams) == 7
"""


def test_files_that_are_added_changed_broken_and_deleted_are_seen(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), STREAM],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
