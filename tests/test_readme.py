"""What the README tells people to write really works."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from include.fold.local import LocalFold
from include.registry import source_named
from include.stream_definition import check_stream
from tests.bronze import stamp

README = (Path(__file__).parents[1] / "README.md").read_text()


def code_with(text: str) -> str:
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if text in b)
    return block


def example(text: str) -> dict[str, Any]:
    """What the block defines, run as a file of its own."""
    names: dict[str, Any] = {"__name__": "readme"}
    exec(code_with(text), names)
    return names


def test_the_example_stream_counts_what_it_says():
    names = example("class Purchase")
    purchase = names["Purchase"]
    engine = LocalFold(names["FOLD"], delay_us=0)
    for rows in stamp([[purchase("ann", 1_000, 0.1), purchase("ann", 2_000, 0.2)]]):
        engine.run_batch(rows)
    assert engine.emitted.rows == [names["Spending"]("ann", 0.1 + 0.2)]
    check_stream(names["STREAM"], source_named(names["STREAM"].source))


def test_the_example_with_timeouts_and_settings_does_what_it_says():
    names = example("class Click")
    click = names["Click"]
    engine = LocalFold(names["define"](after=timedelta(milliseconds=5)), delay_us=0)
    clicks = [click("ann", 1_000), click("ann", 6_000), click("bob", 11_000)]
    for rows in stamp([clicks]):
        engine.run_batch(rows)
    assert engine.emitted.rows == [names["Gone"]("ann", 6_000)]
    assert engine.emitted.emitted_at_us == [11_000]
    assert set(engine.states()) == {"bob"}
    check_stream(names["STREAM"], source_named(names["STREAM"].source))


def test_every_target_in_the_readme_is_in_the_makefile():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    targets = set(re.findall(r"make ([a-z-]+)", README))
    assert targets
    assert targets <= set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
