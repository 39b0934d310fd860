"""The examples, targets and links of README.md, and the links of all pages, are right."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from include.fold.testing.cases import run
from include.registry import source_named
from include.stream_definition import check_stream

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    page: page.read_text() for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
ALL = "\n".join(PAGES.values())


def code_with(text: str) -> str:
    readme = PAGES[ROOT / "README.md"]
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if text in b)
    return block


def example(text: str) -> dict[str, Any]:
    """Return the names that the block defines, run as a file of its own."""
    names: dict[str, Any] = {"__name__": "readme"}
    exec(code_with(text), names)
    return names


def test_the_example_stream_counts_what_it_says():
    names = example("class Purchase")
    purchase = names["Purchase"]
    ran = run(names["FOLD"], [purchase("ann", 1_000, 0.1), purchase("ann", 2_000, 0.2)])
    assert ran.outputs == [names["Spending"]("ann", 0.1 + 0.2)]
    check_stream(names["STREAM"], source_named(names["STREAM"].source))


def test_every_target_that_is_named_is_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z0-9-]+)|^make ([a-z0-9-]+)", ALL, re.MULTILINE))
    targets = {one or other for one, other in targets}
    assert targets
    assert targets <= set(re.findall(r"^([a-z0-9-]+):.*##", makefile, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", PAGES[page]):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(PAGES[file]), f"{page.name} links to #{anchor}"


def anchors(page: str) -> set[str]:
    """Those that GitHub makes of the page's headings."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_and_the_docs_are_such_that_people_read_them():
    sizes = {page: len(text.encode()) for page, text in PAGES.items()}
    readme = sizes.pop(ROOT / "README.md")
    assert (readme <= 10_000, sum(sizes.values()) <= 117 * 1024) == (True, True)


def test_tables_are_read_as_the_readme_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"user_id": ["ann"], "total_count": [2]})
    feed = {"delta.enableChangeDataFeed": "true"}
    for mode in ("error", "append"):
        write_deltalake("lake/tables/user_counts", rows, mode=mode, configuration=feed)
        rows = rows.slice(1)
    read = example("import duckdb")
    assert read["top"].fetchall() == [("ann", 2)]
    assert read["counts"].to_dicts() == [{"user_id": "ann", "total_count": 2}]


@pytest.mark.e2e  # a minute
@pytest.mark.spark
@pytest.mark.turn(0)
def test_the_comparison_prints_what_the_readme_shows():
    done = subprocess.run(
        [sys.executable, "docs/compare.py"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert f"```\n{done.stdout}```" in PAGES[ROOT / "README.md"]
    assert code_with("FILES")[:-1] in (ROOT / "docs" / "compare.py").read_text()


@pytest.mark.spark
def test_spark_reads_tables_as_the_readme_says(spark, tmp_path):
    write_deltalake(tmp_path / "counts", pa.table({"user_id": ["ann"], "total_count": [2]}))
    (sql,) = re.findall(r"```sql\n(.*?)```", PAGES[ROOT / "README.md"], re.DOTALL)
    named = sql.replace("/absolute/path/lake/tables/user_counts", str(tmp_path / "counts"))
    assert [tuple(row) for row in spark.sql(named).collect()] == [("ann", 2)]
