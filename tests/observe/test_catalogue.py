"""docs/findings.md has each finding that the code can make, with its severity."""

import ast
from collections.abc import Iterator

from include.catalogue import FIGURES, FINDINGS, PAGE, findings_page
from include.ingest import ingest as unknown_fields
from include.observe.alerts import BEHIND, FAILED
from include.observe.stream_line import ACCEPTED
from include.settings import PROJECT

# Given to a function that makes a Finding of it: its name, and which argument the finding is.
MAKERS = {"_found": 0, "_far": 0}
OURS = {"BEHIND": BEHIND, "FAILED": FAILED, "ACCEPTED": ACCEPTED}
CONSTANTS = {"FINDING": unknown_fields.FINDING, **OURS}


def strings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from strings(node.body)
        yield from strings(node.orelse)
    elif isinstance(node, ast.Tuple):
        yield from strings(node.elts[0])
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.Name) and node.id in CONSTANTS:
        yield CONSTANTS[node.id]


def made() -> Iterator[tuple[str, str | None]]:
    """Each finding in the code, with its severity where that is written beside it."""
    for folder in ("include", "spark_jobs"):
        for file in sorted((PROJECT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "FINDINGS":
                    yield from ((name, None) for name in strings(node.slice))
                if not isinstance(node, ast.Call):
                    continue
                called = getattr(node.func, "id", "")
                given = {keyword.arg: keyword.value for keyword in node.keywords}
                if called == "Finding":
                    severity = next(strings(given["severity"]), None)
                    yield from ((name, severity) for name in strings(given["finding"]))
                elif called == "record_error":
                    yield from ((name, "error") for name in strings(given["name"]))
                elif called in MAKERS and len(node.args) > MAKERS[called]:
                    severities = [
                        s
                        for a in node.args[1:]
                        for s in strings(a)
                        if s in ("info", "warning", "error")
                    ]
                    severity = (severities or [None])[0]
                    yield from ((name, severity) for name in strings(node.args[MAKERS[called]]))


def test_each_finding_of_the_code_is_known_and_no_other():
    of_limits = {figure.finding for figure in FIGURES.values() if figure.by == "check"}
    assert {name for name, _ in made()} | of_limits - {""} == set(FINDINGS)


def test_severities_are_those_of_the_code():
    written = {(name, severity) for name, severity in made() if severity}
    assert len(written) > 15
    assert {(name, FINDINGS[name].severity) for name, _ in written} == written


def test_the_page_is_what_is_known():
    assert (PROJECT / PAGE).read_text() == findings_page(), (
        f"{PAGE} is old: .venv/bin/python -m include.catalogue > {PAGE}"
    )
