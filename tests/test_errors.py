"""Each code of an error is listed, and each listed code is some error's."""

import json
import pickle
import re

from include.cli.__main__ import main
from include.lake.errors import StatefulError, last_line
from include.settings import PROJECT

# `code="a"`, or `code="a" if ... else "b"`.
CODE = re.compile(r'\bcode ?= ?"(\w+)"(?:[^,)]*? else "(\w+)")?')


def test_the_codes_of_the_code_are_those_that_are_listed():
    rooms = ("include", "spark_jobs", "dags")
    text = "".join(file.read_text() for room in rooms for file in (PROJECT / room).rglob("*.py"))
    found = {code for codes in CODE.findall(text) for code in codes if code}
    listed = re.findall(r"^\| `(\w+)` \|", (PROJECT / "docs/errors.md").read_text(), re.MULTILINE)
    assert sorted(found) == listed


def test_an_error_keeps_its_data_between_processes():
    error = StatefulError("lost", code="lost_input", subject="x", command="./stateful ingest x")
    there = pickle.loads(pickle.dumps(error))
    assert there.record() == error.record()
    assert last_line(there) == "error: lost: `./stateful ingest x` (lost_input)"


def test_with_json_a_refused_command_prints_one_object(tmp_path, capsys):
    lake = tmp_path / "none"
    assert main(["status", "user_counts", "--lake", str(lake), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["subject"]) == ("no_lake", str(lake))
