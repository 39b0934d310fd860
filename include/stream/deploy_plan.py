"""`./stateful plan`: the streams' files beside the lake, and what makes each table right by them.

A plan is a function of folder and lake, made without a JVM. Only approvals are stored.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

from include.lake.delta_log import open_table
from include.lake.errors import SettingsError, StatefulError
from include.lake.paths import Lake
from include.registry import descendants_of, in_order, parents_of, stream_named, stream_names
from include.stream.approvals import PLAN, Approved, read_approval, write_approval
from include.stream.bronze import count_events
from include.stream.manifest import until_of
from include.stream.rebuild_plan import RebuildOptions
from include.stream.record import BEGINNING_US
from include.stream.restate_plan import seconds_for
from include.stream.status_report import next_command
from include.stream.stream_identity import settings_differ, what_changed
from include.stream.stream_status import (
    Span,
    Statuses,
    StreamStatus,
    known_instant,
    stream_status,
)
from include.text_table import counted, cut, first_names, markdown_cell, span_text, text_table

State = Literal[
    "unchanged",
    "new",
    "cut off",
    "late rows",
    "upstream",
    "new code",
    "settings",
    "not proved",
    "gone",
    "cannot be",
]
# By why a table is wrong; the first that is true of it.
STATES: dict[str, State] = {
    "other code": "new code",
    "not recorded": "not proved",
    "upstream": "upstream",
    "late rows": "late rows",
    "cut off": "cut off",
}
NOTHING, RUNS_TO_DO, WOULD_BE_WRONG, CANNOT_BE = 0, 3, 4, 2
EXIT_CODES: dict[State, int] = {
    "unchanged": NOTHING,
    "gone": NOTHING,
    "new": RUNS_TO_DO,
    "cut off": RUNS_TO_DO,
    "cannot be": CANNOT_BE,
}
WORST = (CANNOT_BE, WOULD_BE_WRONG, RUNS_TO_DO, NOTHING)
RUN, REBUILD, SAVEPOINT = "./stateful stream ", "./stateful rebuild ", "savepoint "
COLUMNS = ("stream", "what", "wrong from", "mended by", "rows to read", "seconds")
HOW = {"--migrate-state": "migrate_state", "--forward": "forward"}
WIDTH = 120  # of a terminal
SHORTEST = 12  # of a cell that is cut


@dataclass(frozen=True, kw_only=True)
class PlannedStream:
    """One stream of a plan."""

    stream: str
    state: State
    what: str = ""  # what changed, or why it cannot be
    changed: tuple[str, ...] = ()  # "function streak", "setting gap", "watermark_delay"
    is_wrong: bool = False
    wrong_from: datetime | None = None  # of a wrong table; None is the beginning
    command: str | None = None  # what mends it; None: nothing is to do, or it cannot be
    start: str | None = None  # where that begins: a savepoint, or the beginning
    rows: int | None = None  # to read
    is_at_most: bool = False  # `rows`: it is left out if its parents come to the same rows
    seconds: float | None = None  # None: no replay of the stream is recorded
    descendants: tuple[str, ...] = ()
    code: str | None = None  # the fingerprint of its file
    delay_us: int | None = None
    options: RebuildOptions | None = None  # if it is a rebuild that mends it

    @property
    def is_step(self) -> bool:
        """True if `apply` does something with it."""
        return self.command is not None and self.state != "cannot be"

    @property
    def is_rebuild(self) -> bool:
        """True if it is mended by a rebuild, and not by a run."""
        return (self.command or "").startswith(REBUILD)

    @property
    def key(self) -> str:
        """The parts that an approval of it is bound to, as JSON."""
        return json.dumps([self.stream, self.command, self.code, self.delay_us])

    @property
    def replayed(self) -> int:
        """The rows that a rebuild reads."""
        return (self.rows or 0) if self.is_rebuild else 0

    def cells(self) -> list[str]:
        """Return it for a table of text."""
        wrong = "" if not self.is_wrong else _at(self.wrong_from) or "the beginning"
        rows = "" if self.rows is None else f"{'<= ' * self.is_at_most}{self.rows:,}"
        seconds = "" if self.seconds is None else f"{self.seconds:.0f}"
        return [self.stream, self._what(), wrong, self._mended_by(), rows, seconds]

    def _what(self) -> str:
        parts = (self.what,) if self.state == "late rows" else (self.state, self.what)
        return ": ".join(filter(None, parts))

    def _mended_by(self) -> str:
        if self.command is None or not self.is_step:
            return ""
        if self.command.startswith(RUN):
            return "its first run" if self.state == "new" else "its next run"
        how = next((how for option, how in HOW.items() if option in self.command), "rebuild")
        start = self.start or ""
        if start.startswith(SAVEPOINT):
            start = f"{until_of(start.removeprefix(SAVEPOINT)):%m-%d %H:%M}"
        return f"{how} from {start}" if start else how


def _at(instant: datetime | None) -> str | None:
    return None if instant is None else f"{instant:%Y-%m-%d %H:%M}"


@dataclass(frozen=True)
class DeployPlan:
    """The plan of all streams, or of some, in the order in which they are carried out."""

    streams: tuple[PlannedStream, ...]
    option: str = ""  # what of it was asked for, as `apply` takes it

    @property
    def steps(self) -> tuple[PlannedStream, ...]:
        return tuple(each for each in self.streams if each.is_step)

    @property
    def rows(self) -> int:
        """The rows that all steps replay; a run takes what has come in until then."""
        return sum(step.replayed for step in self.steps)

    @cached_property
    def plan_id(self) -> str:
        """The argument of `apply`: a digest of the steps, and the rows that they replay."""
        text = json.dumps(sorted(step.key for step in self.steps))
        return f"{sha256(text.encode()).hexdigest()[:8]}-{self.rows}"

    @property
    def exit_code(self) -> int:
        """0: nothing is to do; 3: only runs; 4: something would be wrong; 2: something cannot be."""
        codes = {EXIT_CODES.get(each.state, WOULD_BE_WRONG) for each in self.streams}
        return next(code for code in WORST if code in codes | {NOTHING})

    @property
    def shown(self) -> list[PlannedStream]:
        """The streams that are not unchanged."""
        return [each for each in self.streams if each.state != "unchanged"]

    def only(self, chosen: str) -> "DeployPlan":
        """Return the plan of one stream, or with a + behind its name of its descendants, too."""
        name = stream_named(chosen.removesuffix("+")).name
        names = {name, *(descendants_of(name) if chosen.endswith("+") else ())}
        streams = tuple(each for each in self.streams if each.stream in names)
        return DeployPlan(streams, f"{self.option} --only {chosen}")

    def record(self) -> dict[str, Any]:
        """Return the plan for scripts."""
        return {
            "plan": self.plan_id,
            "exit_code": self.exit_code,
            "rows": self.rows,
            "streams": [asdict(each) for each in self.streams],
        }

    def text(self, heading: str) -> str:
        """Return the plan for a terminal."""
        cells = [each.cells() for each in self.shown]
        widest = [max(map(len, column)) for column in zip(COLUMNS, *cells, strict=True)]
        free = WIDTH - sum(widest) + widest[1] - 2 * len(COLUMNS)
        cells = [[name, cut(what, max(free, SHORTEST)), *more] for name, what, *more in cells]
        table = text_table(COLUMNS, cells) if cells else []
        return "\n".join([heading, *table, *self._end(), *self._command()])

    def markdown(self, heading: str) -> str:
        """Return the plan as a comment on a pull request."""
        rows = [[markdown_cell(cell) for cell in each.cells()] for each in self.shown]
        bar = [*[":---"] * 4, "---:", "---:"]
        table = [f"| {' | '.join(cells)} |" for cells in (COLUMNS, bar, *rows)] if rows else []
        commands = [f"`{command}`" for command in self._command()]
        return "\n".join([f"**{heading}**", "", *table, "", *self._end(), *commands])

    def _end(self) -> list[str]:
        wrong = [each for each in self.shown if each.state == "cannot be"]
        lines = [f"{e.stream}: {e.what}{f': `{e.command}`' if e.command else ''}" for e in wrong]
        if unchanged := len(self.streams) - len(self.shown):
            lines.append(f"{counted(unchanged, 'stream')} unchanged")
        known = [step.seconds for step in self.steps if step.seconds is not None]
        took = [f"about {span_text(sum(known))}"] * bool(known)
        if unknown := len(self.steps) - len(known):
            took.append(f"{counted(unknown, 'step')} of unknown length")
        return [*lines, *[f"In this order, {' and '.join(took)}."] * bool(took)]

    def _command(self) -> list[str]:
        return [f"./stateful apply {self.plan_id}{self.option}"] if self.steps else []


def make_plan(lake: Lake, forward: Sequence[str] = ()) -> DeployPlan:
    """Plan all streams of the folder, and those of the lake that have no file there.

    `forward`: those whose rows of the former code stay. SettingsError for an unknown one.
    """
    for name in forward:
        stream_named(name)
    names = stream_names()
    statuses, planned = Statuses(lake), dict[str, PlannedStream]()
    for name in in_order(names):
        parents = [planned[parent] for parent in parents_of(name) if parent in planned]
        above = [each for each in parents if each.is_rebuild]
        each = _planned(name, statuses, is_forward=name in forward)
        planned[name] = _behind(lake, each, above)
    gone = sorted({*lake.folders(f"{lake.root}/tables")} - {*names})
    left = (
        PlannedStream(stream=name, state="gone", what="its table stays as it is") for name in gone
    )
    return DeployPlan((*planned.values(), *left), "".join(f" --forward {name}" for name in forward))


def _planned(name: str, statuses: Statuses, is_forward: bool) -> PlannedStream:
    """Plan a stream by itself."""
    try:
        return planned_stream(statuses.of(stream_named(name)), is_forward)
    except StatefulError as error:
        return PlannedStream(
            stream=name, state="cannot be", what=error.message, command=error.command
        )


def planned_stream(status: StreamStatus, is_forward: bool = False) -> PlannedStream:
    """Plan a stream by itself; StatefulError when it cannot be judged."""
    opened, identity = status.opened, status.opened.identity
    lake, name = opened.lake, opened.name
    changed = what_changed(lake, opened.stream, opened.generations)
    differ = settings_differ(lake, opened.stream, opened.generations)
    wrong = _wrong(status)
    state, what = _state(status, wrong, differ, changed)
    # Its parents come first, and whether it is then rebuilt is seen when they are right.
    waits, alone = status.upstream is not None, replace(status, upstream=None)
    mend = next_command(alone, changed, forward=is_forward and bool(changed))
    known = PlannedStream(
        stream=name,
        state=state,
        what=what,
        changed=tuple(changed),
        is_wrong=bool(wrong) or status.doubt is not None,
        wrong_from=known_instant(min((s.from_us for s in wrong), default=BEGINNING_US)),
        descendants=descendants_of(name),
        code=identity.code,
        delay_us=identity.delay_us,
    )
    if mend is None:
        return known
    if mend.why is not None:
        return replace(known, state="cannot be", what=mend.why, command=mend.command)
    names = ("command", "start", "rows", "seconds", "options")
    planned = replace(known, **{name: getattr(mend, name) for name in names})
    return _at_most(lake, planned) if waits else planned


def _wrong(status: StreamStatus) -> list[Span]:
    """Return the spans where the table is wrong, or else that of its live state."""
    live = status.table_status.live
    of_live = [live] if live is not None and live.reason is not None else []
    return list(status.table_status.wrong) or of_live


def _state(
    status: StreamStatus, wrong: Sequence[Span], differ: Sequence[str], changed: Sequence[str]
) -> tuple[State, str]:
    """The state of a stream, and what it is by."""
    if status.doubt is not None:
        return "not proved", status.doubt
    if status.opened.row is None:
        return "new", ""
    late = _late_text(wrong)
    if changed:
        what = "; ".join(filter(None, (", ".join(differ or changed), late)))
        return "settings" if differ else "new code", what
    reasons = {span.reason for span in wrong}
    if not reasons:
        return "unchanged", ""
    found = (of for reason, of in STATES.items() if reason in reasons)
    state: State = next(found, "not proved")
    return state, ", ".join(parents_of(status.opened.name)) if state == "upstream" else late


def _late_text(wrong: Iterable[Span]) -> str:
    groups = {group for span in wrong for group in span.missing}
    if not groups:
        return ""
    dates = first_names(sorted({f"{group.date:%m-%d}" for group in groups}), 2)
    return f"{counted(sum(group.rows for group in groups), 'late row')} ({dates})"


def _behind(lake: Lake, planned: PlannedStream, above: Sequence[PlannedStream]) -> PlannedStream:
    """Plan a stream whose parents are rebuilt: it follows where these then have other rows."""
    if planned.state != "unchanged" or not above:
        return planned
    starts = [each.wrong_from for each in above if each.is_wrong]
    planned = replace(
        planned,
        state="upstream",
        what=", ".join(each.stream for each in above),
        is_wrong=bool(starts),
        wrong_from=None if None in starts else min(filter(None, starts), default=None),
        command=f"{REBUILD}{planned.stream} --apply",
    )
    return _at_most(lake, planned)


def _at_most(lake: Lake, planned: PlannedStream) -> PlannedStream:
    """Bound what a stream reads whose parents are mended first: all its bronze."""
    rows = count_events(open_table(lake.bronze(stream_named(planned.stream).source)))
    seconds = seconds_for(lake, planned.stream, rows)
    return replace(planned, start=None, rows=rows, is_at_most=True, seconds=seconds)


MORE_ROWS = 1.5  # times those that were approved


def approve(lake: Lake, whole: DeployPlan, chosen: DeployPlan, plan_id: str) -> Approved:
    """Return the approved steps of the plan with this id, of which `chosen` are to be done.

    The id is that of either; the first time its steps are stored, later they are what is left of
    them. SettingsError when `chosen` has others, or reads more rows by half.
    """
    _refuse_impossible(chosen.streams)
    approved = read_approval(lake, plan_id)
    if approved is None:
        shown = [each for each in (chosen, whole) if _digest(each.plan_id) == _digest(plan_id)]
        if not shown:
            raise _changed(plan_id, "its steps are others now")
        _refuse_more_rows(plan_id, shown[0].rows, _rows_in(plan_id))
        approved = {step.key: step.replayed for step in shown[0].steps}
        write_approval(lake, plan_id, approved)
    for step in chosen.steps:
        refuse_other_step(approved, step, plan_id)
    rows = sum(approved[step.key] for step in chosen.steps)
    _refuse_more_rows(plan_id, chosen.rows, rows)
    return approved


def step_left(
    lake: Lake, name: str, approved: Approved, plan_id: str, *, is_forward: bool
) -> PlannedStream | None:
    """Return what an approved plan has left to do for a stream that has taken in its parents' rows; None: it is right.

    SettingsError for what was not approved, and where a parent is to be made right first.
    """
    step = planned_stream(stream_status(lake, stream_named(name)), is_forward)
    if step.command is None and step.state != "cannot be":
        return None
    if step.is_at_most:
        raise _changed(plan_id, f"{step.what}, which {name} reads, is to be made right first")
    refuse_other_step(approved, step, plan_id)
    return step


def refuse_other_step(approved: Approved, step: PlannedStream, plan_id: str) -> None:
    """Raise SettingsError for a step that is not among those that were approved."""
    if step.state == "cannot be":
        _refuse_impossible([step])
    if step.key not in approved:
        raise _changed(plan_id, f"it has no such step for {step.stream}")


def _refuse_impossible(streams: Sequence[PlannedStream]) -> None:
    for each in streams:
        if each.state == "cannot be":
            said = f"{each.stream} cannot be as it is: {each.what}"
            raise SettingsError(said, subject=each.stream, command=each.command)


def _refuse_more_rows(plan_id: str, rows: int, approved: int) -> None:
    if rows > approved * MORE_ROWS:
        raise _changed(plan_id, f"it would read {rows:,} rows, and {approved:,} were approved")


def _changed(plan_id: str, said: str) -> SettingsError:
    return SettingsError(
        f"plan {plan_id} is not what it was: {said}. Nothing was done: look at a new one",
        code="plan_changed",
        subject=plan_id,
        command=PLAN,
    )


def _digest(plan_id: str) -> str:
    return plan_id.partition("-")[0]


def _rows_in(plan_id: str) -> int:
    rows = plan_id.partition("-")[2]
    return int(rows) if rows.isdecimal() else 0
