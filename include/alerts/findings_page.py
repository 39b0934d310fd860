"""docs/findings.md, made of what is known of each: `python -m include.alerts.findings_page`."""

import sys
from collections.abc import Iterator

from include.alerts.known import KNOWN
from include.lake.findings import Severity

PAGE = "docs/findings.md"
HEAD = """# Findings

Made by `.venv/bin/python -m include.alerts.findings_page`. A finding is a row of `ops/findings`, with figures, and the command to enter. It
is on the [page](page.md) of its stream, in the log of the task that found it, and counted in the metric `stateful_lake_findings`."""
HEARD: dict[Severity, str] = {
    "error": "Besides, the task that finds it is red, and people are told by an [alert](alerts.md).",
    "warning": "Besides, people are told by an [alert](alerts.md); the Dag stays green.",
    "info": "Nobody is told: it is there for who looks.",
}


def findings_page() -> str:
    """The whole page, as Markdown."""
    return "\n\n".join([HEAD, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for severity in HEARD:
        head = f"## {severity.capitalize()}\n\n{HEARD[severity]}\n\n"
        head += "| finding | found by | what it is | what to do |\n|---|---|---|---|\n"
        yield head + "\n".join(
            f"| `{name}` | {known.by} | {known.what} | {known.action} |"
            for name, known in KNOWN.items()
            if known.severity == severity
        )


if __name__ == "__main__":
    sys.stdout.write(findings_page())
