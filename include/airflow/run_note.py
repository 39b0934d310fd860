"""The note of a backfill's Dag run: what its interval became, in words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from include.stream_definition import load_definition

if TYPE_CHECKING:
    from include.lake.paths import Lake
    from include.settings import Stream

# What the plugin run_notes looks for.
TASK, KEY = "publish", "note"
OURS = "Backfill: "
# Of a note in Airflow's database. PostgreSQL refuses more, in the transaction that ends the run: the
# scheduler would end with it, and again at each start.
MOST_CHARACTERS = 1_000


def run_note(lake: "Lake", stream: "Stream", extra: Mapping[str, Any]) -> str:
    """Of what the Asset's event tells of a recompute."""
    from include.coverage.table_coverage import find_coverage

    start, until = (text[:16].replace("T", " ") for text in extra["interval"])
    parts = [f"{start} until {until} UTC: {_changed(stream, extra)}"]
    if "promoted_to" in extra:
        parts.append(f"promoted: the live state is generation {extra['promoted_to']}")
    found = find_coverage(lake, stream)
    parts += [] if found else ["the table is right now"]
    parts += [f"still {each.finding}: {each.detail}. Next: {each.action}" for each in found]
    return _fitting(OURS + "\n\n".join(parts))


def _fitting(note: str) -> str:
    """As PostgreSQL takes it; the tab *State* has the findings in full."""
    text = note.replace("\0", "?")
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def _changed(stream: "Stream", extra: Mapping[str, Any]) -> str:
    read = f"{extra['rows_read'] or 0:,} rows of bronze read"
    if load_definition(stream).fold.output_mode == "update":
        return f"{read}; the table shows the live state, which a recompute does not touch"
    before, after, removed, added = (
        f"{extra[f'rows_{name}'] or 0:,}" for name in ("before", "after", "removed", "added")
    )
    return f"{before} rows of the table became {after} ({removed} removed, {added} added); {read}"
