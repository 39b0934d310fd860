"""The pages that the code makes are as the code is, and list what there is."""

import re

from docs.make_reference import pages
from include.catalogue import FIGURES, FINDINGS
from include.settings import PROJECT


def test_the_pages_are_what_the_code_says():
    old = [file for file, text in pages().items() if (PROJECT / file).read_text() != text]
    assert old == [], ".venv/bin/python -m docs.make_reference writes them"


def test_each_argument_has_a_meaning():
    rows = re.findall(r"^\| `(.*)` \| (.*) \|$", pages()["docs/reference.md"], re.MULTILINE)
    assert [declared for declared, meaning in rows if not meaning] == []
    assert ("name: str", "Lower case letters, digits and _") in rows


def test_each_finding_that_is_known_is_made_somewhere():
    """A name that is not known is an error where it is used."""
    of_limits = {figure.finding for figure in FIGURES.values() if figure.by == "check"}
    files = [file for room in ("include", "spark_jobs") for file in (PROJECT / room).rglob("*.py")]
    # Of the catalogue what comes after its lists.
    code = "".join(file.read_text().rpartition("\nFIGURES = {")[2] for file in files)
    assert [name for name in FINDINGS.keys() - of_limits if f'"{name}"' not in code] == []
