"""What must hold of a stream's rows before they are published: conditions in Spark's SQL.

The scheduler imports this at every parse, so it needs no package.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from include.lake.errors import SettingsError, StatefulError
from include.text_table import did_you_mean

TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<comment>--[^\n]*|/\*.*?\*/)"""
    r"|`(?P<quoted>[^`]+)`|(?P<number>\d[\w.]*)|(?P<word>[^\W\d]\w*)|->|::|\S",
    re.DOTALL,
)
# Parameters of a function in the condition: `x -> x > 0`, `(x, y) -> x + y`.
PARAMETERS = re.compile(r"(?:\b(\w+)|\(([\w\s,]+)\))\s*->")
# Words of a condition that stand for no column, and need no parenthesis after them.
OF_SQL = (
    "all and any as asc between both by case cast collate current_date current_timestamp "
    "current_user day days desc distinct div else end escape exists extract false filter first "
    "following for from hour hours ignore ilike in interval is last leading like microsecond "
    "microseconds millisecond milliseconds minute minutes month months not null nulls or order "
    "over partition position preceding range regexp respect rlike rows second seconds separator "
    "some then time timestamp to trailing true unbounded week weeks when where within year years"
)
KEYWORDS = frozenset(OF_SQL.split())


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

    def refuse_unknown(self, columns: Collection[str]) -> None:
        """SettingsError for the first word of the condition that is no column, be it misspelt.

        All else of it is Spark's to judge: when a run begins, before anything is read.
        """
        known = {column.lower() for column in columns}
        for name in _names(self.condition):
            if name.lower() not in known:
                raise SettingsError(
                    f"check {self.name}: {name} is no column of the table, which has "
                    f"{', '.join(columns)}{did_you_mean(name, columns)}",
                    subject=name,
                )


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


def _names(condition: str) -> Iterator[str]:
    """The words that can only be columns."""
    given = {name for found in PARAMETERS.findall(condition) for name in _words(" ".join(found))}
    tokens = [token for token in TOKEN.finditer(condition) if not token["comment"]]
    for number, token in enumerate(tokens):
        before = tokens[number - 1][0].lower() if number else ""
        after = tokens[number + 1] if number + 1 < len(tokens) else None
        if before == ".":  # a field of a struct
            continue
        if token["quoted"]:
            yield token["quoted"]
        elif (word := token["word"]) and word not in given and word.lower() not in KEYWORDS:
            is_call = after is not None and after[0] == "("
            is_typed = after is not None and after["text"]  # DATE '2026-01-01'
            is_type = before in ("as", "::")  # CAST(x AS bigint)
            if not (is_call or is_typed or is_type):
                yield word


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)
