"""Each code of an error is listed, and each listed code is some error's."""

import ast
import json
import pickle
import re
from collections.abc import Iterator

from include.cli.__main__ import main
from include.lake.errors import StatefulError, last_line
from include.settings import PROJECT


def codes_in(tree: ast.AST) -> Iterator[str]:
    """What an error is given as `code=`, or has as its class attribute `code`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error"):
            given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            yield from (n.value for each in given for n in ast.walk(each) if is_text(n))
        elif isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code":
                    yield ast.literal_eval(line.value)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_the_codes_of_the_code_are_those_that_are_listed():
    files = [
        file
        for room in ("include", "spark_jobs", "dags")
        for file in (PROJECT / room).rglob("*.py")
    ]
    found = {code for file in files for code in codes_in(ast.parse(file.read_text()))}
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
