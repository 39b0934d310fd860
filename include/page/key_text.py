"""A key of a stream for a terminal: what its page shows, of the same figures."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from include.page.key_figures import KeyFigures, KeyState, ShownEvent, ShownStep
from include.page.key_outputs import ShownOutput


def key_text(figures: KeyFigures) -> str:
    """What is kept of the key, what waits, and why each row was emitted: the newest comes last."""
    return "\n".join(_lines(figures))


def _lines(f: KeyFigures) -> Iterator[str]:
    yield f"{f.names} {f.key} of {f.stream}, the last {f.days} d, replayed from {f.base}"
    yield from (f"savepoint {_kept(each)}" for each in reversed(f.savepoints))
    if f.hidden:
        yield f"{f.hidden:,} earlier steps are left out"
    for step in reversed(f.steps):
        yield from _step(step)
    yield f"state now {_kept(f.state)}" if f.state else "the stream has settled nothing yet"
    if f.late:
        yield f"{f.late:,} of its events came late: the table may go without until a recompute"
    yield from (f"waits     {_at(each.at)}  {_event(each)}" for each in f.pending)
    yield from (f"not explained: {_output(each)}" for each in f.unexplained)
    if f.failure:
        yield f"error: {f.failure}"


def _kept(s: KeyState) -> str:
    if s.is_damaged:
        return f"{_at(s.until)}  is damaged"
    parts = [s.state or "none"]
    parts += [f"timeout {_at(s.timeout_at)}"] if s.timeout_at else []
    parts += [f"timers {s.timers}"] if s.timers else []
    return f"{_at(s.until)}  {', '.join(parts)}"


def _step(step: ShownStep) -> Iterator[str]:
    told = [_event(each) for each in step.events] or ["a timeout, or the end of the state"]
    wakes = f", times out {_at(step.wakes_at)}" if step.wakes_at else ""
    told.append(f"-> state {step.state or 'none'}{wakes}")
    told += [f"-> row   {_output(each)}" for each in step.outputs]
    told += [f"-> rejected: {each}" for each in step.rejected]
    yield from _beside(_at(step.at), told)


def _beside(at: str, told: Sequence[str]) -> Iterator[str]:
    for number, text in enumerate(told):
        yield f"{at if number == 0 else '':<28} {text}"


def _event(event: ShownEvent) -> str:
    late = " (came late)" if event.was_late else ""
    return f"event {event.text}, ingested {_at(event.ingested_at)}{late}"


def _output(output: ShownOutput) -> str:
    gone = " taken away" if output.is_removal else ""
    there = {None: "", True: " (so in the table)", False: " (not so in the table)"}
    return f"{output.text}{gone}{there[output.in_table]}"


def _at(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S.%f}"
