"""What must hold of a stream's rows before they are published: conditions in Spark's SQL.

The scheduler imports this at every parse, so it needs no package.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from include.lake.errors import SettingsError, StatefulError


@dataclass(frozen=True, kw_only=True)
class Check:
    """A condition by the columns of a stream's table. Null does not meet it, as false does not."""

    name: str
    each_row: str | None = None  # of one row: "count > 0"
    # Of all rows that are published at once, by aggregates: "count_if(model IS NULL) < 10".
    together: str | None = None
    # error: what does not meet it is not published, and the run stops. warning: a finding.
    severity: Literal["warning", "error"] = "error"

    def __post_init__(self) -> None:
        if (self.each_row is None) == (self.together is None) or not self.condition.strip():
            raise SettingsError(
                f"check {self.name}: give one condition, each_row= or together=", subject=self.name
            )
        if self.severity not in ("warning", "error"):
            raise SettingsError(
                f"check {self.name}: severity must be warning or error", subject=self.name
            )

    @property
    def condition(self) -> str:
        return self.each_row or self.together or ""


class Verdict(NamedTuple):
    """What a check says of rows that are about to be published."""

    check: Check
    rows: int
    failing: int | None  # rows that do not meet it; None: they do not, together, or by `problem`
    examples: tuple[str, ...] = ()  # of these, as JSON
    problem: str | None = None  # why its condition cannot be asked of them, as 1 / 0 > 1

    @property
    def is_met(self) -> bool:
        return self.failing == 0


class DataCheckError(StatefulError):
    """Rows do not meet a check of severity error, and were not published; the message says what to do."""

    code = "check_failed"
