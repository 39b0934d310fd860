"""The care of tables for people: what is planned and why, and what it has changed."""

from collections.abc import Iterator, Sequence

from include.care.plan_care import TablePlan
from include.care.table_figures import TableFigures
from include.text_table import bytes_text, text_table

PLAN_COLUMNS = ("table", "files", "small", "bytes", "on disk", "to rewrite", "plan")
CHANGE_COLUMNS = ("when", "version", "files", "small", "bytes", "files on disk", "bytes on disk")


def format_plan(plans: Sequence[TablePlan]) -> str:
    """All tables that are there, with what they get; then the findings in full."""
    rows = [_plan_row(plan, plan.figures) for plan in plans if plan.figures]
    lines = text_table(PLAN_COLUMNS, rows, left=(0, len(PLAN_COLUMNS) - 1)) if rows else []
    missing = [plan.table.name for plan in plans if plan.is_missing]
    if missing:
        lines.append(f"  not there yet: {', '.join(missing)}")
    lines += [f"  {line}" for plan in plans for line in _finding_lines(plan)]
    return "\n".join(["table care:", *lines])


def _plan_row(plan: TablePlan, figures: TableFigures) -> tuple[str, ...]:
    return (
        plan.table.name,
        f"{figures.files:,}",
        f"{figures.small_files:,}",
        bytes_text(figures.bytes),
        bytes_text(figures.bytes_on_disk),
        bytes_text(plan.bytes_to_rewrite) if plan.optimize else "",
        _reasons(plan),
    )


def _reasons(plan: TablePlan) -> str:
    return "; ".join(plan.reasons) or "nothing to do"


def _finding_lines(plan: TablePlan) -> Iterator[str]:
    for found in plan.findings:
        yield f"{found.severity}: {found.detail}"
        if found.action:
            yield f"    to do: {found.action}"


def why_nothing(plan: TablePlan) -> str:
    """Why a table gets nothing, in one line."""
    return f"{plan.table.name}: {_reasons(plan)}"


def format_change(table: str, before: TableFigures, after: TableFigures) -> str:
    """A table's figures before and after its care."""
    rows = [_change_row("before", before), _change_row("after", after)]
    return "\n".join([f"{table}:", *text_table(CHANGE_COLUMNS, rows, left=(0,))])


def _change_row(occasion: str, figures: TableFigures) -> tuple[str, ...]:
    return (
        occasion,
        str(figures.version),
        f"{figures.files:,}",
        f"{figures.small_files:,}",
        bytes_text(figures.bytes),
        f"{figures.files_on_disk:,}",
        bytes_text(figures.bytes_on_disk),
    )
