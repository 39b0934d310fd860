"""What the README tells people to write really works."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from include.streams import SOURCES, Stream
from spark_jobs.engines.local import LocalFold
from spark_jobs.fold.definition import map_groups_with_state
from spark_jobs.fold.group_state import GroupState
from tests.bronze import stamp

README = (Path(__file__).parents[1] / "README.md").read_text()
NAMES = {
    "Iterator": Iterator,
    "NamedTuple": NamedTuple,
    "GroupState": GroupState,
    "map_groups_with_state": map_groups_with_state,
    "Stream": Stream,
    "timedelta": timedelta,
    "__name__": "readme",
}


def code_with(text: str) -> str:
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if text in b)
    return block


def test_the_example_stream_counts_what_it_says():
    names = dict(NAMES)
    exec(code_with("class Purchase"), names)
    purchase = names["Purchase"]
    engine = LocalFold(names["FOLD"], delay_us=0)
    for rows in stamp([[purchase("ann", 1_000, 0.1), purchase("ann", 2_000, 0.2)]]):
        engine.run_batch(rows)
    assert engine.emitted.rows == [names["Spending"]("ann", 0.1 + 0.2)]
    assert set(names["COMMENTS"]) == set(names["Spending"]._fields)


def test_the_example_entry_is_one():
    stream = eval(code_with('name="spending"'), dict(NAMES))
    assert {source.name for source in SOURCES} >= {stream.source}


def test_every_target_in_the_readme_is_in_the_makefile():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    targets = set(re.findall(r"make ([a-z-]+)", README))
    assert targets
    assert targets <= set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
