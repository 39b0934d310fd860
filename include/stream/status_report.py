"""`./stateful status`: the verdict, what has changed, and the one command that mends it."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from include.lake.dead_letters import dead_letters_number
from include.lake.errors import StatefulError, how_to_mend, last_line
from include.lake.paths import Lake
from include.registry import stream_named, stream_names
from include.settings import Stream
from include.stream.manifest import mapped_savepoint, until_of
from include.stream.rebuild_plan import RebuildOptions, plan_rebuild
from include.stream.stream_identity import what_changed
from include.stream.stream_status import (
    Span,
    StreamStatus,
    dead_letters_status,
    known_instant,
    stream_status,
)
from include.text_table import counted


@dataclass(frozen=True)
class NextCommand:
    """The command that makes a table right, and an estimate of it; None: not known."""

    command: str | None
    rows: int | None = None
    seconds: float | None = None
    why: str | None = None  # why there is no plan

    def text(self) -> str:
        """Return the command and its estimate for a terminal."""
        said = f"`{self.command}`" if self.command else "no command mends it"
        if self.rows is not None:
            said += f" replays {counted(self.rows, 'row')} of bronze"
        if self.seconds is not None:
            said += f", about {self.seconds:.0f} s"
        return said if self.why is None else f"{said}: {self.why}"


def status_of(lake: Lake, stream: Stream) -> tuple[str, dict[str, Any]]:
    """The status of a stream, as text for a terminal and as a record for scripts."""
    status = stream_status(lake, stream)
    opened = status.opened
    changed = what_changed(lake, opened.stream, opened.generations)
    mend = next_command(status, is_changed=bool(changed))
    lines = [f"{stream.name} {status.text()}"]
    if changed:
        lines.append(f"changed since its state was made: {', '.join(changed)}")
    if mend is not None:
        lines.append(f"next: {mend.text()}")
    more = {"changed": changed, "mend": None if mend is None else asdict(mend)}
    return "\n  ".join(lines), status_record(status) | more


def status_of_each(lake: Lake) -> Iterator[tuple[str, dict[str, Any]]]:
    """The status of each stream; the error of one that cannot be judged."""
    for name in stream_names():
        try:
            yield status_of(lake, stream_named(name))
        except StatefulError as error:
            yield f"{name}: {last_line(error)}", {"stream": name, **error.record()}


def next_command(status: StreamStatus, is_changed: bool) -> NextCommand | None:
    """The command that makes a table and its live state right by today's file; None: they are."""
    opened, name = status.opened, status.opened.name
    if opened.row is None and status.doubt is None:
        return NextCommand(f"./stateful stream {name}")
    if status.is_right and status.live_is_right and not is_changed:
        return None
    if status.bronze_changed is not None:
        mend = how_to_mend(f"bronze/{opened.source}")
        return NextCommand(mend.command, why=status.bronze_changed)
    is_mapped = opened.row is not None and mapped_savepoint(opened.row["code"]) is not None
    full_refresh = is_mapped and bool(status.table_status.wrong)
    try:
        plan = plan_rebuild(opened.lake, opened.declared, RebuildOptions(full_refresh=full_refresh))
    except StatefulError as error:
        return NextCommand(error.command, why=error.message)
    option = " --full-refresh" if full_refresh else ""
    return NextCommand(
        f"./stateful rebuild {name}{option} --apply",
        plan.events - plan.starting.events,
        plan.estimated_seconds,
    )


def status_record(status: StreamStatus) -> dict[str, Any]:
    """The verdict for scripts; None is the beginning, or that nothing is complete or known."""
    opened, table_status = status.opened, status.table_status
    mapped = mapped_savepoint(opened.identity.code)
    return {
        "stream": opened.name,
        "generation": opened.row["generation"] if opened.row else None,
        "complete_until": known_instant(table_status.until_us),
        "is_right": status.is_right and status.live_is_right,
        "mismatch": status.doubt,
        "wrong": _spans(table_status.wrong),
        "live_is_right": status.live_is_right,
        "dead_letters_wrong": _dead_letters_wrong(status),
        "states_mapped_as_of": None if mapped is None else until_of(mapped),
        "findings": [asdict(each) for each in status.findings],
    }


def _dead_letters_wrong(status: StreamStatus) -> list[dict[str, datetime | str | None]] | None:
    """The spans of wrong dead letters; None: there are none, or the next run puts back others."""
    opened = status.opened
    is_ahead = dead_letters_number(opened.lake, opened.name) != opened.record.dead_letters
    if not opened.fold.keeps_dead_letters or is_ahead:
        return None
    return _spans(dead_letters_status(opened, opened.identity).wrong)


def _spans(spans: Iterable[Span]) -> list[dict[str, datetime | str | None]]:
    return [
        {"from": known_instant(s.from_us), "until": known_instant(s.until_us), "reason": s.reason}
        for s in spans
    ]
