"""What the state of a stream depends on beside bronze: enough to tell whose savepoint is whose."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class StreamIdentity:
    """A stream as its file and entry are now. Made by `include/plans/stream_identity.py`."""

    stream: str
    source: str
    output_mode: Literal["append", "update"]
    time_column: Literal["event_time", "ingested_at"]  # of bronze: the fold's clock
    delay_us: int  # of the watermark
    # Fingerprint of the stream's file, its settings and its initial state: a savepoint with
    # another one holds another fold's state.
    code: str
    state_schema: str
    # `as_of` of the initial state: earlier bronze rows are not folded. None without one.
    since_us: int | None
