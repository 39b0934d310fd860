"""The border (nothing but `spark_jobs` imports pyspark), and one order of rooms for imports."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import sizes

ROOT = Path(__file__).resolve().parents[1]
# A room imports from its own line and from those above it.
ORDER = (
    "include/fold include/lake include/text_table.py",
    "include/connectors.py include/catalogue.py",
    "include/settings.py include/stream_definition.py",
    "include/streams include/registry.py",
    "include/spark include/job.py",
    "include/ingest",
    "include/stream",
    "include/maintain include/sample",
    "include/amend",
    "include/steps.py include/run_local.py",
    "include/observe",
    "include/page",
    "include/airflow include/docker include/setup",
    "include/cli",
    "dags",
)
OF_JOBS = ("spark_jobs/tables", "spark_jobs/engines", "spark_jobs")


def modules_imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.relative_to(ROOT)} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def rooms(*lines: str) -> list[tuple[str, list[str]]]:
    """Each room with all that it may import from."""
    seen: list[str] = []
    found = []
    for line in lines:
        seen += line.split()
        found += [(room, list(seen)) for room in line.split()]
    return found


def files_of(room: str) -> list[Path]:
    path = ROOT / room
    files = [path] if path.suffix else sorted(path.rglob("*.py"))
    assert files
    return files


def is_below_any(module: str, rooms: list[str]) -> bool:
    return any(is_below(module, room.removesuffix(".py").replace("/", ".")) for room in rooms)


@pytest.mark.parametrize(("room", "above"), rooms(*ORDER))
def test_imports_go_one_way(room, above):
    for file in files_of(room):
        for module in modules_imported(file):
            ours = is_below_any(module, ["include", "dags", "spark_jobs", "tests"])
            assert not ours or is_below_any(module, above), f"{file} imports {module}"
            assert not is_below_any(module, ["pyspark", "delta"]), f"{file} imports {module}"


@pytest.mark.slow
def test_what_decides_loads_no_pyspark():
    files = [file.relative_to(ROOT).with_suffix("") for file in files_of("include")]
    modules = [".".join(file.parts) for file in files if file.stem != "__main__"]
    source = f"import {', '.join(modules)}, sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert "include.stream.rebuild_plan" in run.stdout.split()
    assert "pyspark" not in run.stdout.split()


@pytest.mark.parametrize(("room", "above"), rooms(*OF_JOBS))
def test_jobs_import_include_and_no_airflow(room, above):
    for file in files_of(room):
        for module in modules_imported(file):
            ours = is_below_any(module, ["dags", "spark_jobs", "tests"])
            assert not ours or is_below_any(module, above), f"{file} imports {module}"
            assert not is_below_any(module, ["airflow", "include/airflow", "include/cli"]), (
                f"{file}: {module}"
            )


def test_what_the_scheduler_and_set_up_import_needs_no_package():
    """The one imports it at every parse; the other before packages are installed."""
    light = (
        "include.steps include.registry include.spark.submit include.setup.install "
        "spark_jobs.engines.deferred_processor"
    )
    source = f"import {', '.join(light.split())}, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", source], cwd=ROOT, check=True, capture_output=True)
    assert not {"pyarrow", "deltalake", "pandas", "numpy"} & set(run.stdout.decode().split())


@pytest.mark.parametrize(
    "file",
    [
        "compact_state",
        "engines/engine",
        "engines/live_batch",
        "restate_interval",
        "replay_bronze",
        "rebuild_stream",
        "run_stream",
        "write_savepoint",
    ],
)
def test_what_a_job_decides_is_not_bound_to_spark(file):
    """A job asks an engine; only its `main` says which one."""
    imported = set(modules_imported(ROOT / "spark_jobs" / f"{file}.py"))
    assert not {module for module in imported if module.partition(".")[0] in ("pyspark", "delta")}


def test_tables_are_read_through_the_file_system_of_arrow():
    """Through that of delta-rs, which is in Python, a process now and then aborted at its end."""
    reads = {"to_pyarrow_dataset", "to_pyarrow_table"}
    found = []
    for folder in ("dags", "docs", "include", "spark_jobs"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in reads:
                    found.append((file, {keyword.arg for keyword in node.keywords}))
    assert found
    assert [file.name for file, given in found if "filesystem" not in given] == []
    pages = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    assert [
        page.name for page in pages if any(f".{read}(" in page.read_text() for read in reads)
    ] == []


def test_no_name_of_a_test_holds_gzip(request: pytest.FixtureRequest):
    """Its header has the time: two processes would collect tests of different names."""
    header = r"\x1f\x8b"
    assert [item.nodeid for item in request.session.items if header in item.nodeid] == []


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    return sizes.sizes()


@pytest.mark.slow
@pytest.mark.parametrize("figure", sizes.budgets())
def test_the_house_does_not_grow(measured, figure):
    budget, aim = sizes.budgets()[figure]
    assert measured[figure] <= budget, f"{figure}: {measured[figure]}, and {budget} are budgeted"
    assert aim <= budget


def test_each_figure_has_a_budget(measured):
    assert measured.keys() == sizes.budgets().keys()
