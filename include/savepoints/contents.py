"""What the rows of a savepoint come to, which tells whether they are the ones that were written."""

from typing import NamedTuple

from include.lake.errors import StatefulError


class SavepointError(StatefulError):
    """The rows of a savepoint are not those that its manifest describes, and never will be."""

    code = "unreadable_savepoint"
    exit_code = 1


class Contents(NamedTuple):
    """What a savepoint's rows come to."""

    keys: int
    checksum: str
