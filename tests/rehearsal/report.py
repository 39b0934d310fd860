"""What a rehearsal saw: its steps and their times, and memory per service."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from include.text_table import bytes_text, text_table
from tests.rehearsal.not_rehearsed import ALSO_NOT_REHEARSED, NOT_REHEARSED
from tests.rehearsal.oracle import Comparison
from tests.rehearsal.services import Peak


@dataclass
class Steps:
    """The steps that were made, each with its seconds."""

    say: Callable[[str], None]
    taken: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.say(f"\n== {name}")
        started, outcome = time.monotonic(), "not finished after"
        try:
            yield
            outcome = "done in"
        finally:
            seconds = time.monotonic() - started
            self.taken.append((name, seconds))
            self.say(f"   {outcome} {seconds:.1f} s")


def times_lines(taken: Sequence[tuple[str, float]]) -> list[str]:
    total = sum(seconds for _, seconds in taken)
    rows = [(name, f"{seconds:.1f}") for name, seconds in [*taken, ("all", total)]]
    return text_table(("step", "seconds"), rows, left=[0])


def memory_lines(peaks: Mapping[str, Peak]) -> list[str]:
    rows = [
        (
            name,
            bytes_text(peak.memory.total),
            bytes_text(peak.memory.java),
            bytes_text(peak.memory.other),
            str(peak.restarts),
        )
        for name, peak in peaks.items()
    ]
    return text_table(("service", "peak", "of Java", "of others", "restarts"), rows, left=[0])


def equality_lines(comparisons: Sequence[Comparison]) -> list[str]:
    rows = [
        (
            each.stream,
            "equal" if each.is_equal else "DIFFERENT",
            *(f"{count:,}" for count in (each.rows, each.missing, each.unexpected)),
        )
        for each in comparisons
    ]
    return text_table(("table", "oracle", "rows", "missing", "unexpected"), rows, left=[0, 1])


def not_rehearsed_lines(keys: Sequence[str]) -> list[str]:
    described = {key: NOT_REHEARSED[key] for key in keys} | dict(ALSO_NOT_REHEARSED)
    return text_table(("not rehearsed", "because"), list(described.items()), left=[0, 1])
