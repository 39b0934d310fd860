"""How a landed row, or a whole file, is refused: with a word for queries and one for people."""

import json

SHOWN_CHARACTERS = 80
UNREADABLE_FILE = "unreadable_file"  # the code of a file that is refused as a whole


class RefusedError(Exception):
    """The row is no event. `code` is stable, for queries; `reason` is for people."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class UnreadableFileError(Exception):
    """None of the file's rows can be trusted; the message says what is wrong with it."""


def wrong_type(name: str, value: object, expected: str) -> RefusedError:
    """The refusal of a value that is not what its field stores."""
    return RefusedError("wrong_type", f"{name} is {shown(value)}, expected {expected}")


def shown(value: object) -> str:
    """A value as JSON for a message: ASCII, on one line, cut to a readable length."""
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):  # an integer of more digits than Python prints; too deep
        text = type(value).__name__
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
