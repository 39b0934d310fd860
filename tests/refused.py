"""What is refused, asserted by data: the error's code, its subject and the command that mends it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from include.fold.failures import StateFunctionError
from include.lake.errors import StatefulError, last_line


@contextmanager
def refused(
    code: str,
    *,
    subject: str | None = None,
    command: str | None = None,
    error: type[StatefulError] = StatefulError,
) -> Iterator[pytest.ExceptionInfo[StatefulError]]:
    """The body raises a StatefulError of this code, subject and command (as far as they are given)."""
    with pytest.raises(error) as raised:
        yield raised
    found = raised.value
    assert found.code == code, found
    assert subject in (None, found.subject), found
    assert command in (None, found.command), found


def commands_in(text: object) -> list[str]:
    """The command lines of ours that a plan, a finding's action or a note names, in its order."""
    return re.findall(r"`\./stateful ([^`]+)`", str(text))


@contextmanager
def failed_call(*named: str, cause: type[Exception] | None = None) -> Iterator[None]:
    """The body ends with a StateFunctionError of this cause, which names these values."""
    with pytest.raises(StateFunctionError) as raised:
        yield
    assert cause is None or type(raised.value.__cause__) is cause
    assert [value for value in named if value not in str(raised.value)] == [], raised.value


@contextmanager
def refused_until(command: str) -> Iterator[pytest.ExceptionInfo[StatefulError]]:
    """The body raises an error of which the line that people see names this command of ours."""
    with pytest.raises(StatefulError) as raised:
        yield raised
    assert f"./stateful {command}" in last_line(raised.value), raised.value
