"""`./stateful status`: the verdict, what has changed, and the one command that mends it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from include.lake.dead_letters import dead_letters_number
from include.lake.errors import StatefulError, how_to_mend, last_line
from include.lake.paths import Lake
from include.registry import stream_named, stream_names
from include.stream.manifest import mapped_savepoint, until_of
from include.stream.rebuild_plan import RebuildOptions, RebuildPlan, plan_rebuild
from include.stream.stream_identity import CALLED, what_changed
from include.stream.stream_status import (
    Span,
    Statuses,
    StreamStatus,
    dead_letters_status,
    known_instant,
)
from include.text_table import counted


@dataclass(frozen=True)
class NextCommand:
    """The command that makes a table right, and an estimate of it; None: not known."""

    command: str | None
    rows: int | None = None
    seconds: float | None = None
    why: str | None = None  # why there is no plan
    start: str | None = None  # where a replay begins: a savepoint, or the beginning
    options: RebuildOptions | None = None

    def text(self) -> str:
        """Return the command and its estimate for a terminal."""
        said = f"`{self.command}`" if self.command else "no command mends it"
        if self.rows is not None:
            said += f" replays {counted(self.rows, 'row')} of bronze"
        if self.seconds is not None:
            said += f", about {self.seconds:.0f} s"
        return said if self.why is None else f"{said}: {self.why}"


def status_of(status: StreamStatus) -> tuple[str, dict[str, Any]]:
    """The status of a stream, as text for a terminal and as a record for scripts."""
    opened = status.opened
    changed = what_changed(opened.lake, opened.stream, opened.generations)
    mend = next_command(status, changed)
    lines = [f"{opened.name} {status.text()}"]
    if changed:
        lines.append(f"changed since its state was made: {', '.join(changed)}")
    if mend is not None:
        lines.append(f"next: {mend.text()}")
    more = {"changed": changed, "mend": None if mend is None else asdict(mend)}
    return "\n  ".join(lines), status_record(status) | more


def status_of_each(lake: Lake) -> Iterator[tuple[str, dict[str, Any]]]:
    """The status of each stream; the error of one that cannot be judged."""
    statuses = Statuses(lake)
    for name in stream_names():
        try:
            yield status_of(statuses.of(stream_named(name)))
        except StatefulError as error:
            yield f"{name}: {last_line(error)}", {"stream": name, **error.record()}


def next_command(
    status: StreamStatus, changed: Sequence[str], forward: bool = False
) -> NextCommand | None:
    """The command that makes a table and its live state right by today's file; None: they are.

    `changed`: the parts of the file that the state was not made by; `forward`: rows of the former
    code stay.
    """
    opened, name = status.opened, status.opened.name
    if status.bronze_changed is not None:
        mend = how_to_mend(f"bronze/{opened.source}")
        return NextCommand(mend.command, why=status.bronze_changed)
    if _needs_run(status, changed):
        unread = None if opened.bronze is None else opened.rows_unread()
        return NextCommand(f"./stateful stream {name}", unread)
    if status.is_right and status.live_is_right and not changed:
        return None
    if status.upstream is not None:  # first: a table made of it would be made twice
        return NextCommand(status.upstream.command, why=status.upstream.why)
    try:
        plan, options = _planned_rebuild(status, changed, forward)
    except StatefulError as error:
        return NextCommand(error.command, why=error.message)
    option = options.arguments()
    return NextCommand(
        f"./stateful rebuild {name}{option} --apply",
        plan.events - plan.starting.events,
        plan.estimated_seconds,
        start=plan.starting.text(),
        options=options,
    )


def _needs_run(status: StreamStatus, changed: Sequence[str]) -> bool:
    """True if a run makes the table right: the first, unless it would leave rows of bronze out as
    late; or the one after a run that was cut off."""
    opened, identity = status.opened, status.opened.identity
    if status.doubt is not None:
        return False
    if opened.row is None:
        if identity.time_column == "ingested_at":
            return True  # no row is late
        since_us = identity.since_us
        return not status.read_late(opened.lake, opened.source, identity.delay_us, since_us, None)
    reasons = {span.reason for span in status.table_status.wrong}
    if changed or reasons != {"cut off"}:
        return False
    try:
        opened.refuse_other_checkpoint()
    except StatefulError:
        return False
    return True


def _planned_rebuild(
    status: StreamStatus, changed: Sequence[str], forward: bool
) -> tuple[RebuildPlan, RebuildOptions]:
    """The rebuild that mends a stream: of another state by the file's migration, where one is possible."""
    opened, declared = status.opened, status.opened.declared
    is_mapped = opened.row is not None and mapped_savepoint(opened.row["code"]) is not None
    options = RebuildOptions(
        buckets=declared.buckets if "buckets" in changed else None,
        partitions=declared.state_partitions if "state_partitions" in changed else None,
        full_refresh=is_mapped and bool(status.table_status.wrong) and not forward,
        forward=forward,
    )
    if (
        not forward
        and CALLED["state_schema"] in changed
        and opened.definition.migrate_state is not None
    ):
        migrating = replace(options, full_refresh=False, migrate_state=True)
        try:
            return plan_rebuild(opened, migrating), migrating
        except StatefulError as error:
            if error.code != "not_migratable":
                raise
    return plan_rebuild(opened, options), options


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
