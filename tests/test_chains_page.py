"""The commands of docs/chains.md say what it shows."""

import re
from pathlib import Path

import pytest

from include.settings import PROJECT
from tests.faults.command_line import CommandLine
from tests.simulator.live_model import LiveModel
from tests.simulator.local_engine import LocalEngine

PAGE = (PROJECT / "docs" / "chains.md").read_text()
# Digests of the code; the place of the lake, and the hour.
OTHERS = re.compile(r"[0-9a-f]{8}-\d+|beside .* UTC")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_its_commands_say_what_it_shows(tmp_path: Path):
    model, plan = LiveModel(), ""
    commands = CommandLine(lambda: LocalEngine(model))
    shown = [f"$ {line}\n" for line in blocks("sh")[0].splitlines()]
    shown += re.split(r"^(?=\$ )", blocks("")[0], flags=re.MULTILINE)[1:]
    with commands.installed():
        for each in shown:
            line, _, says = each.partition("\n")
            command = OTHERS.sub(plan, line.removeprefix("$ ./stateful "))
            done = commands.stateful(str(tmp_path), command)
            assert done.code == 0, done.text
            plan = (re.findall(r"^Plan (\S+):", done.text) or [plan])[0]
            wanted = ".*".join(map(re.escape, OTHERS.sub("", says).split("...\n")))
            assert not says or re.fullmatch(wanted, OTHERS.sub("", done.text), re.DOTALL), done.text
