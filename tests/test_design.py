"""docs/design.md lists the files that `./stateful stream` enters, and docs/law.md has an engine checked."""

import re

import pytest

from include.lake.paths import Lake
from include.settings import PROJECT
from tests.faults.command_line import CommandLine
from tests.faults.lakes import STREAMS, Story, registered
from tests.simulator.live_model import LiveModel
from tests.simulator.local_engine import LocalEngine
from tests.sizes import Walk, profiled

DESIGN = (PROJECT / "docs" / "design.md").read_text()
EVENT, RUN, UNDER = "The way of an event", "The way of a run", "Underneath both"


def listed(title: str) -> list[str]:
    """The files of a section's block; `include/` is left out there."""
    section = DESIGN.partition(f"## {title}\n")[2].partition("\n## ")[0]
    files = re.findall(r"^([\w/]+\.py)\b|(?<= )([\w/]+\.py)(?=\s)", section, re.MULTILINE)
    names = (first or other for first, other in files)
    return [name if name.startswith("spark_jobs/") else f"include/{name}" for name in names]


@pytest.fixture(scope="module")
def entered(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files that the command enters for a third landed file, in the order of first entry."""
    root, model, walk = str(tmp_path_factory.mktemp("lake")), LiveModel(), Walk()
    story = Story(Lake(root), STREAMS["user_counts"], 0)
    commands = CommandLine(lambda: LocalEngine(model))
    with registered(), commands.installed():
        for _ in range(2):
            story = story.land()
            assert commands.stateful(root, "stream user_counts").code == 0
        story = story.land()
        with profiled(walk):
            done = commands.stateful(root, "stream user_counts")
    assert done.code == 0, done.text
    return [file.removeprefix(f"{PROJECT}/") for file in walk.files]


def test_each_file_that_the_command_enters_is_listed_once(entered):
    every = [file for title in (EVENT, RUN, UNDER) for file in listed(title)]
    assert set(every) ^ set(entered) == set()
    assert len(every) == len(entered)


@pytest.mark.parametrize(("title", "most"), [(EVENT, 45), (RUN, 33)])
def test_files_are_listed_in_the_order_of_first_entry(entered, title, most):
    files = listed(title)
    assert files == [file for file in entered if file in files]
    assert len(files) <= most


def test_the_engine_of_the_law_is_checked():
    page = (PROJECT / "docs" / "law.md").read_text()
    (text,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(text, {"__name__": "law"})
    wrong = text.replace("r[1] < until", "r[1] <= until")
    with pytest.raises(AssertionError):
        exec(wrong, {"__name__": "law"})
