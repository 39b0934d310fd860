"""What a setting's value may be. Spark has all values as text."""

import re
from dataclasses import dataclass

NUMBER = re.compile(r"-?\d+(\.\d+)?")  # Python reads more as a number than Spark does


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def allows(self, value: str) -> bool:
        return value in self.words

    def __str__(self) -> str:
        return " or ".join(self.words)


@dataclass(frozen=True, kw_only=True)
class Range:
    """A number from `floor` to `ceiling`, both included; or -1, which leaves it to RocksDB."""

    floor: float
    ceiling: float
    whole: bool = True
    or_minus_one: bool = False

    def allows(self, value: str) -> bool:
        if not NUMBER.fullmatch(value) or (self.whole and "." in value):
            return False
        number = float(value)
        return self.floor <= number <= self.ceiling or (self.or_minus_one and number == -1)

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.floor:g} to {self.ceiling:g}" + ", or -1" * self.or_minus_one


BOOLEAN = Choice(("true", "false"))
