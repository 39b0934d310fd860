"""docs/findings.md has each finding that the code can make, and none that it cannot."""

from include.catalogue import FIGURES, FINDINGS, PAGE, findings_page
from include.settings import PROJECT


def test_each_finding_that_is_known_is_made_somewhere():
    """A name that is not known is an error where it is used."""
    of_limits = {figure.finding for figure in FIGURES.values() if figure.by == "check"}
    files = [file for room in ("include", "spark_jobs") for file in (PROJECT / room).rglob("*.py")]
    code = "".join(file.read_text() for file in files if file.name != "catalogue.py")
    assert [name for name in FINDINGS.keys() - of_limits if f'"{name}"' not in code] == []


def test_the_page_is_what_is_known():
    assert (PROJECT / PAGE).read_text() == findings_page(), (
        f"{PAGE} is old: .venv/bin/python -m include.catalogue > {PAGE}"
    )
